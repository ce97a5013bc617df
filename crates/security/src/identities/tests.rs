use std::fs;

use super::*;

fn principal(name: &str, instance: &str, realm: &str) -> Principal {
    Principal {
        name: name.to_owned(),
        instance: instance.to_owned(),
        realm: realm.to_owned(),
    }
}

/// `user: name`, `operator: name`, `anonymous` or `superuser`.
fn told(identities: &Identities, name: &str, instance: &str, realm: &str) -> String {
    match identities.identity(&principal(name, instance, realm)) {
        Identity::User(name) => format!("user: {name}"),
        Identity::Operator(name) => format!("operator: {name}"),
        other => other.to_string(),
    }
}

#[test]
fn own_and_foreign_realms() {
    let identities = Identities::new("example.org").realm("AD.EXAMPLE.ORG");
    for (client, expected) in [
        (("alice", "", "EXAMPLE.ORG"), "user: alice"),
        (("alice", "", "Example.Org"), "user: alice"),
        (("alice", "", "AD.EXAMPLE.ORG"), "user: alice"),
        (("root", "admin", "EXAMPLE.ORG"), "user: root.admin"),
        (("Alice", "", "OTHER.ORG"), "user: alice@other.org"),
        (("root", "admin", "OTHER.ORG"), "user: root.admin@other.org"),
        (("alice", "", "ORG"), "user: alice@org"),
        (("alice", "", ""), "user: alice"),
        (("afs", "", ""), "superuser"),
        // A KDC may have a client of this name; he is not the cell.
        (("afs", "", "EXAMPLE.ORG"), "user: afs"),
        (("afs", "x", ""), "user: afs.x"),
    ] {
        let (name, instance, realm) = client;
        assert_eq!(
            told(&identities, name, instance, realm),
            expected,
            "{client:?}"
        );
    }
}

#[test]
fn names_that_mean_something_else_are_nobody_s() {
    let identities = Identities::new("example.org").superuser("a b");
    for (name, instance, realm) in [
        ("system:administrators", "", "EXAMPLE.ORG"),
        ("alice@other.org", "", "EXAMPLE.ORG"),
        ("alice", "x@other.org", "EXAMPLE.ORG"),
        ("a b", "", "EXAMPLE.ORG"),
        ("a\u{1b}", "", "EXAMPLE.ORG"),
        ("a/b", "", "EXAMPLE.ORG"),
        ("alice", "", "A@B"),
        ("alice", "", "A:B"),
        (
            "a-name-of-60-octets-0123456789012345678901234567890123456789",
            "",
            "OTHER",
        ),
    ] {
        assert_eq!(
            told(&identities, name, instance, realm),
            "anonymous",
            "{name}"
        );
    }
}

#[test]
fn superusers_are_listed_by_name() {
    let identities = Identities::new("example.org")
        .superuser("root.admin")
        .superuser("bob@OTHER.ORG")
        .superuser("carol@other.org");
    for (client, expected) in [
        (("root", "admin", "EXAMPLE.ORG"), "operator: root.admin"),
        (("root", "", "EXAMPLE.ORG"), "user: root"),
        (("root", "admin", "OTHER.ORG"), "user: root.admin@other.org"),
        (("ROOT", "admin", "EXAMPLE.ORG"), "user: root.admin"),
        (("bob", "", "OTHER.ORG"), "operator: bob@other.org"),
        (("bob", "", "Other.Org"), "user: bob@other.org"),
        (("carol", "", "OTHER.ORG"), "operator: carol@other.org"),
        (("carol", "", "EXAMPLE.ORG"), "user: carol"),
    ] {
        let (name, instance, realm) = client;
        assert_eq!(
            told(&identities, name, instance, realm),
            expected,
            "{client:?}"
        );
    }
}

#[test]
fn files_are_optional_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut identities = Identities::new("example.org")
        .realms_file(at("krb.conf"))
        .unwrap()
        .exclusions_file(at("krb.excl"))
        .unwrap()
        .superusers_file(at("UserList"))
        .unwrap();
    identities.realms_file = identities.realms_file.map(Watched::always_look);
    identities.exclusions_file = identities.exclusions_file.map(Watched::always_look);
    identities.superusers_file = identities.superusers_file.map(Watched::always_look);
    assert_eq!(
        told(&identities, "admin", "", "AD.ORG"),
        "user: admin@ad.org"
    );
    fs::write(
        at("krb.conf"),
        "ad.org OTHER.ORG\nTHIRD.ORG kdc.third.org\n",
    )
    .unwrap();
    fs::write(at("krb.excl"), "admin@OTHER.ORG\nadmin@EXAMPLE.ORG\n").unwrap();
    fs::write(
        at("UserList"),
        "\nadmin trailing words\n 2 YmFzZTY0 eve\nbob\n",
    )
    .unwrap();
    assert_eq!(told(&identities, "admin", "", "AD.ORG"), "operator: admin");
    assert_eq!(
        told(&identities, "admin", "", "OTHER.ORG"),
        "user: admin@other.org"
    );
    assert_eq!(
        told(&identities, "admin", "", "THIRD.ORG"),
        "user: admin@third.org"
    );
    // The realm called like the cell knows no exclusions.
    assert_eq!(
        told(&identities, "admin", "", "EXAMPLE.ORG"),
        "operator: admin"
    );
    assert_eq!(told(&identities, "bob", "", "EXAMPLE.ORG"), "operator: bob");
    for name in ["eve", "2", "trailing", "YmFzZTY0"] {
        assert_eq!(
            told(&identities, name, "", "EXAMPLE.ORG"),
            format!("user: {}", name.to_lowercase())
        );
    }
    fs::remove_file(at("UserList")).unwrap();
    assert_eq!(told(&identities, "bob", "", "EXAMPLE.ORG"), "user: bob");
}
