//! Known messages, and what becomes of altered ones.

use proptest::prelude::*;

use super::*;
use crate::tests::hex;

/// Encryption type, usage, key, plaintext, message: from RFC 8009, A and from MIT krb5's
/// t_decrypt.c, made by two independent implementations.
const MESSAGES: &[(i32, u32, &str, &str, &str)] = &[
    (
        23,
        0,
        "f81fec39255f5784e850c4377c88bd85",
        "",
        "02c1eb15586144122ec717763dd348bf00434ddc6585954c",
    ),
    (
        23,
        1,
        "67d1300d281223867f9647ff48721273",
        "31",
        "6156e0cc04e0a0874f9fda008f498a7adbbc80b70b14dddbc0",
    ),
    (
        23,
        2,
        "3e40ab6093695281b3ac1a9304224d98",
        "392062797465737373",
        "0f9ad121d99d4a09448e4f1f718c4f5cbe6096262c66f29df232a87c9f98755d55",
    ),
    (
        23,
        3,
        "4ba2fbf0379faed87a254d3b353d5a7e",
        "31332062797465732062797465",
        "612c57568b17a70352bae8cf26fb9459a6f3353cd35fd439db3107cbec765d326dfc04c1dd",
    ),
    (
        23,
        4,
        "68f263db3fce15d031c9eab02d67107a",
        "333020627974657320627974657320627974657320627974657320627974",
        "95f9047c3ad75891c2e9b04b16566dc8b6eb9ce4231afb2542ef87a7b5a0f260a99f0460508de0ce\
         cc632d07c354124e46c5d2234eb8",
    ),
    (
        17,
        0,
        "5a5c0f0ba54f3828b2195e66ca24a289",
        "",
        "49ff8e11c173d9583a3254fbe7b1f1df36c538e8416784a1672e6676",
    ),
    (
        17,
        1,
        "98450e3f3baa13f5c99beb936981b06f",
        "31",
        "f86742f537b35dc2174a4dbaa920faf9042090b065e1ebb1cad9a65394",
    ),
    (
        17,
        2,
        "9062430c8cda3388922e6d6a509f5b7a",
        "392062797465737373",
        "68fb9679601f45c78857b2bf820fd6e53eca8d42fd4b1d7024a09205abb7cd2ec26c355d2f",
    ),
    (
        17,
        3,
        "033ee6502c54fd23e27791e987983827",
        "31332062797465732062797465",
        "ec366d0327a933bf49330e650e49bc6b974637fe80bf532fe51795b4809718e6194724db948d1fd6\
         37",
    ),
    (
        17,
        4,
        "dceeb70b3de76562e689226c76429148",
        "333020627974657320627974657320627974657320627974657320627974",
        "c96081032d5d8eeb7e32b4089f789d0faa481dea74c0f97cbf3146ddfcf8e800156ecb532fc203e3\
         0ff600b63b350939fece510f02d7ff1e7bac",
    ),
    (
        18,
        0,
        "17f275f2954f2ed1f90c377ba7f4d6a369aa0136e0bf0c927ad6133c693759a9",
        "",
        "e5094c55ee7b38262e2b044280b069379a95bf95bd8376fb3281b435",
    ),
    (
        18,
        1,
        "b9477e1ff0329c0050e20ce6c72d2dff27e8fe541ab0954429a9cb5b4f7b1e2a",
        "31",
        "406150b97aeb76d43b36b62cc1ecdfbe6f40e95755e0beb5c27825f3a4",
    ),
    (
        18,
        2,
        "b1ae4cd8462aff1677053cc9279aac30b796fb81ce21474dd3ddbcfea4ec76d7",
        "392062797465737373",
        "09957aa25fcaf88f7b39e4406e633012d5fea21853f6478da7065caef41fd454a40824eec5",
    ),
    (
        18,
        3,
        "e5a72be9b7926c1225bafef9c1872e7ba4cdb2b17893d84abd90acdd8764d966",
        "31332062797465732062797465",
        "d8f1aafeec84587cc3e700a774e56651a6d693e174ec4473b5e6d96f80297a653fb818ad893e719f\
         96",
    ),
    (
        18,
        4,
        "f1c795e9248a09338d82c3f8d5b567040b0110736845041347235b1404231398",
        "333020627974657320627974657320627974657320627974657320627974",
        "d1137a4d634cfece924dbc3bf6790648bd5cff7de0e7b99460211d0daef3d79a295c688858f3b34b\
         9cbd6eebae81daf6b734d4d498b6714f1c1d",
    ),
    (
        19,
        2,
        "3705d96080c17728a0e800eab6e0d23c",
        "",
        "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
    ),
    (
        19,
        2,
        "3705d96080c17728a0e800eab6e0d23c",
        "000102030405",
        "84d7f30754ed987bab0bf3506beb09cfb55402cef7e6877ce99e247e52d16ed4421dfdf8976c",
    ),
    (
        19,
        2,
        "3705d96080c17728a0e800eab6e0d23c",
        "000102030405060708090a0b0c0d0e0f",
        "3517d640f50ddc8ad3628722b3569d2ae07493fa8263254080ea65c1008e8fc295fb4852e7d83e1e\
         7c48c37eebe6b0d3",
    ),
    (
        19,
        2,
        "3705d96080c17728a0e800eab6e0d23c",
        "000102030405060708090a0b0c0d0e0f1011121314",
        "720f73b18d9859cd6ccb4346115cd336c70f58edc0c4437c5573544c31c813bce1e6d072c186b39a\
         413c2f92ca9b8334a287ffcbfc",
    ),
    (
        20,
        2,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        "",
        "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac612748b9bbfbe7eb4ce3c",
    ),
    (
        20,
        2,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        "000102030405",
        "4ed7b37c2bcac8f74f23c1cf07e62bc7b75fb3f637b9f559c7f664f69eab7b6092237526ea0d1f61\
         cb20d69d10f2",
    ),
    (
        20,
        2,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        "000102030405060708090a0b0c0d0e0f",
        "bc47ffec7998eb91e8115cf8d19dac4bbbe2e163e87dd37f49beca92027764f68cf51f14d798c227\
         3f35df574d1f932e40c4ff255b36a266",
    ),
    (
        20,
        2,
        "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
        "000102030405060708090a0b0c0d0e0f1011121314",
        "40013e2df58e8751957d2878bcd2d6fe101ccfd556cb1eae79db3c3ee86429f2b2a602ac86fef6ec\
         b647d6295fae077a1feb517508d2c16b4192e01f62",
    ),
];

#[test]
fn known_messages_are_opened() {
    for &(etype, usage, key, plain, sealed) in MESSAGES {
        let key = EncryptionKey::new(etype, hex(key));
        let opened = decrypt(&key, usage, &hex(sealed)).unwrap();
        assert_eq!(*opened, hex(plain), "{etype} {usage}");
        assert_eq!(
            decrypt(&key, usage + 1, &hex(sealed)),
            Err(CipherError::Message),
            "{etype}: the usage goes into the keys"
        );
    }
}

/// Types that encrypt here.
const TYPES: [EncryptionType; 5] = [
    EncryptionType::Aes128Sha1,
    EncryptionType::Aes256Sha1,
    EncryptionType::Aes128Sha2,
    EncryptionType::Aes256Sha2,
    EncryptionType::Rc4,
];

#[test]
fn des_is_opened_with_its_padding() {
    let key = [0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1];
    for (etype, checksum) in [
        (1, des::Checksum::Crc32),
        (2, des::Checksum::Md4),
        (3, des::Checksum::Md5),
    ] {
        let sealed = des::encrypt_for_tests(checksum, key, b"a ticket's inside");
        let key = EncryptionKey::new(etype, key.to_vec());
        let opened = decrypt(&key, 2, &sealed).unwrap();
        assert!(opened.starts_with(b"a ticket's inside"));
        assert!(opened[17..].iter().all(|&octet| octet == 0) && opened.len() < 25);
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(
                decrypt(&key, 2, &damaged),
                Err(CipherError::Message),
                "{at}"
            );
        }
        assert_eq!(encrypt(&key, 2, b"x"), Err(CipherError::Key));
    }
}

#[test]
fn keys_of_other_types_or_lengths_are_not_taken() {
    for key in [
        EncryptionKey::new(18, vec![0; 16]),
        EncryptionKey::new(17, vec![0; 32]),
        EncryptionKey::new(23, vec![]),
        EncryptionKey::new(26, vec![0; 32]),
        EncryptionKey::new(-18, vec![0; 32]),
    ] {
        assert_eq!(encrypt(&key, 2, b"x"), Err(CipherError::Key));
        assert_eq!(decrypt(&key, 2, &[0; 100]), Err(CipherError::Key));
    }
}

#[test]
fn keys_tell_nothing_and_compare() {
    let key = EncryptionKey::new(18, vec![0xab; 32]);
    assert_eq!(format!("{key:?}"), "EncryptionKey(18, ..)");
    assert_eq!(key, key.clone());
    assert_ne!(key, EncryptionKey::new(18, vec![0xac; 32]));
    assert_ne!(key, EncryptionKey::new(20, vec![0xab; 32]));
    let random = EncryptionKey::random(EncryptionType::Aes256Sha1);
    assert_eq!(random.octets().len(), 32);
    assert_ne!(random, EncryptionKey::random(EncryptionType::Aes256Sha1));
}

proptest! {
    #[test]
    fn messages_lead_back(
        etype in prop::sample::select(&TYPES[..]),
        plain in prop::collection::vec(any::<u8>(), 0..200),
        usage in 0..1100u32,
    ) {
        let key = EncryptionKey::random(etype);
        let sealed = encrypt(&key, usage, &plain).unwrap();
        prop_assert_eq!(&*decrypt(&key, usage, &sealed).unwrap(), &plain);
        let other = EncryptionKey::random(etype);
        prop_assert_eq!(decrypt(&other, usage, &sealed), Err(CipherError::Message));
    }

    #[test]
    fn altered_messages_are_refused(
        etype in prop::sample::select(&TYPES[..]),
        plain in prop::collection::vec(any::<u8>(), 0..100),
        at: prop::sample::Index,
        cut: prop::sample::Index,
        bit in 0..8,
    ) {
        let key = EncryptionKey::random(etype);
        let sealed = encrypt(&key, 2, &plain).unwrap();
        let mut altered = sealed.clone();
        altered[at.index(sealed.len())] ^= 1u8 << bit;
        prop_assert_eq!(decrypt(&key, 2, &altered), Err(CipherError::Message));
        let cut = &sealed[..cut.index(sealed.len())];
        prop_assert_eq!(decrypt(&key, 2, cut), Err(CipherError::Message));
    }

    #[test]
    fn random_octets_never_panic(
        etype in prop::sample::select(EncryptionType::ALL),
        sealed in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        prop_assert!(decrypt(&EncryptionKey::random(etype), 2, &sealed).is_err());
    }
}
