//! The same commands by users with tickets, and by the cell's key over the network.

use super::differences::{self, Difference};
use super::mask::Mask;
use super::{Row, Side, bos, compare, files, network, place, pts, refused, row, vos};
use crate::kerberos::{Realm, register, security};
use crate::openafs::OpenAfs;
use crate::place::Place;
use crate::server::Server;

/// What alice may do as a user, and what she may not.
fn users_rows() -> Vec<Row> {
    let mut rows = vec![
        row("pts examine alice"),
        row("pts examine bob"),
        row("pts membership alice"),
        row("pts membership admin"),
        row("pts creategroup alice:friends"),
        row("pts creategroup bob:friends"),
        row("pts adduser bob alice:friends"),
        row("pts adduser bob bob:friends"),
        row("pts membership alice:friends"),
        row("pts membership bob"),
        row("pts listowned alice"),
        row("pts setfields alice:friends -access SOMar"),
        row("pts chown alice:friends bob"),
        row("pts examine bob:friends"),
        row("vos listvldb -encrypt"),
        row("vos listvol srv -encrypt"),
        row("vos create srv a data -encrypt"),
    ];
    rows.extend(refused::rows());
    rows
}

/// Every kind of change once, by the cell's key.
fn keys_rows() -> Vec<Row> {
    vec![
        row("vos create srv a bykey"),
        row("vos create srv a bykey2 -encrypt"),
        row("vos listvldb -name bykey -encrypt"),
        row("vos backup bykey"),
        row("vos dump bykey -file bykey.dump"),
        row("vos restore srv b bykey3 -file bykey.dump -encrypt"),
        row("vos examine bykey3"),
        row("vos addsite srv b bykey"),
        row("vos release bykey"),
        row("vos move bykey2 srv a srv b"),
        row("vos remove -id bykey3"),
        row("pts createuser bykey"),
        row("pts examine bykey"),
        row("pts delete bykey"),
        row("bos status srv ptserver"),
        row("vos partinfo srv").mask(Mask::Numbers),
    ]
}

#[test]
#[ignore = "needs OpenAFS's servers"]
fn tools_print_the_same_with_tickets_and_keys() {
    let (openafs, afar) = (network(), network());
    let theirs = OpenAfs::start_with(&openafs, "srv", &["--kerberos"]);
    let ours = Server::start(&afar, "srv", &security(&theirs.keys()));
    register(&place(&afar).with_keys(&theirs.keys()));
    let realm = Realm::of(&theirs);
    let [admin, alice] = ["admin", "alice"].map(|name| realm.login(&openafs, name));
    let sides = |place: &dyn Fn(Place) -> Place, options| {
        [&openafs, &afar].map(|net| Side::new(net, place(super::place(net)), options))
    };

    let by_alice = |place: Place| place.with_environment(alice.environment());
    let [there, here] = sides(&by_alice, None);
    compare(&users_rows(), there, here, differences::REFUSED);

    let by_key = |place: Place| place.with_keys(&theirs.keys());
    let [there, here] = sides(&by_key, Some("-localauth"));
    let none: &[Difference] = &[];
    compare(&keys_rows(), there, here, none);

    let by_admin = |place: Place| place.with_environment(admin.environment());
    let rows = [
        vos::rows(),
        files::rows(),
        vos::more_rows(),
        pts::rows(),
        bos::rows(),
    ];
    let [there, here] = sides(&by_admin, None);
    // Here administrators are configured at both kinds of servers.
    let known = differences::ALL.iter().copied();
    let known: Vec<Difference> = known.filter(|d| !d.is_of("bos listusers srv")).collect();
    compare(&rows.concat(), there, here, &known);
    ours.stop();
}
