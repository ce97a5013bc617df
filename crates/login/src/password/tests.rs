//! Passwords between a client and a server, without a network.

use super::*;

const ALICE: i32 = 7;

/// The record of a password.
fn record(setup: &Setup, password: &[u8]) -> Record {
    let (new, request) = NewPassword::begin(password).unwrap();
    new.finish(&setup.register(ALICE, &request).unwrap())
        .unwrap()
}

/// Logs in; the bindings are those the two sides have.
fn login(
    setup: &Setup,
    record: Option<&Record>,
    password: &[u8],
    bindings: (&[u8], &[u8]),
) -> Result<(), PasswordError> {
    let (login, ke1) = PasswordLogin::begin(password)?;
    let credential = Credential::Known(ALICE);
    let (challenged, ke2) = setup.challenge(&credential, record, &ke1, bindings.0)?;
    let ke3 = login.prove(&ke2, bindings.1)?;
    challenged.check(&ke3, bindings.0)
}

#[test]
fn the_right_password_and_no_other() {
    let setup = Setup::generate();
    let record = record(&setup, b"correct horse");
    let same: (&[u8], &[u8]) = (b"session", b"session");
    assert_eq!(login(&setup, Some(&record), b"correct horse", same), Ok(()));
    let wrong = Err(PasswordError::Wrong);
    assert_eq!(login(&setup, Some(&record), b"correct hors", same), wrong);
    assert_eq!(login(&setup, None, b"correct horse", same), wrong);
    let other = (&b"session"[..], &b"another"[..]);
    assert_eq!(login(&setup, Some(&record), b"correct horse", other), wrong);
    let stranger = Setup::generate();
    assert_eq!(
        login(&stranger, Some(&record), b"correct horse", same),
        wrong
    );
}

#[test]
fn what_is_stored_is_read_again_and_nothing_else() {
    let setup = Setup::generate();
    let record = record(&setup, b"x");
    let octets = setup.to_octets();
    let again = Setup::of_octets(&octets).unwrap();
    let same: (&[u8], &[u8]) = (b"", b"");
    assert_eq!(login(&again, Some(&record), b"x", same), Ok(()));
    assert!(Setup::of_octets(&octets[1..]).is_err());
    assert!(Setup::of_octets(&[&octets[..], b"x"].concat()).is_err());
    assert_eq!(Record::of_octets(record.octets()), Ok(record.clone()));
    assert!(Record::of_octets(&[record.octets(), b"x"].concat()).is_err());
    assert!(Record::of_octets(b"").is_err());
    assert_eq!(format!("{setup:?} {record:?}"), "Setup(..) Record(..)");
}

#[test]
fn messages_that_make_no_sense_are_refused() {
    let setup = Setup::generate();
    for octets in [&b""[..], &[0; 32], &[0xff; 96], &[1; 1024]] {
        assert!(setup.register(ALICE, octets).is_err());
        let nobody = Credential::Nobody("alice");
        assert!(setup.challenge(&nobody, None, octets, b"").is_err());
        let (new, _) = NewPassword::begin(b"x").unwrap();
        assert!(new.finish(octets).is_err());
        let (login, _) = PasswordLogin::begin(b"x").unwrap();
        assert!(login.prove(octets, b"").is_err());
    }
    assert_eq!(NewPassword::begin(b"").unwrap_err(), PasswordError::Empty);
    let long = vec![b'x'; PASSWORD_MAX + 1];
    assert_eq!(
        NewPassword::begin(&long).unwrap_err(),
        PasswordError::TooLong
    );
}

#[test]
fn a_stranger_gets_an_answer_of_the_same_length() {
    let setup = Setup::generate();
    let record = record(&setup, b"x");
    let (_, ke1) = PasswordLogin::begin(b"x").unwrap();
    let known = Credential::Known(ALICE);
    let (_, known) = setup.challenge(&known, Some(&record), &ke1, b"").unwrap();
    let nobody = Credential::Nobody("bob");
    let (_, nobody) = setup.challenge(&nobody, None, &ke1, b"").unwrap();
    assert_eq!(known.len(), nobody.len());
    // The OPRF's part, by which a guess begins, is the same each time.
    let (_, again) = setup
        .challenge(&Credential::Nobody("bob"), None, &ke1, b"")
        .unwrap();
    assert_eq!(nobody[..32], again[..32]);
    assert_ne!(nobody[32..], again[32..]);
}
