//! The encryption types that are known here.

use std::fmt;
use std::str::FromStr;

macro_rules! types {
    ($(
        $(#[$doc:meta])*
        $name:ident = $number:literal, $len:literal, $text:literal, $short:literal;
    )*) => {
        /// An encryption type of Kerberos.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EncryptionType {
            $($(#[$doc])* $name,)*
        }

        impl EncryptionType {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its number in IANA's registry.
            #[must_use]
            pub const fn number(self) -> i32 {
                match self { $(Self::$name => $number),* }
            }

            /// Bytes of a key.
            #[must_use]
            pub const fn key_len(self) -> usize {
                match self { $(Self::$name => $len),* }
            }

            /// Its name in IANA's registry and in MIT's `krb5.conf`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            const fn short_name(self) -> &'static str {
                match self { $(Self::$name => $short),* }
            }
        }
    };
}

types! {
    /// Single DES; broken.
    DesCrc = 1, 8, "des-cbc-crc", "des-cbc-crc";
    /// Single DES; broken.
    DesMd4 = 2, 8, "des-cbc-md4", "des-cbc-md4";
    /// Single DES; broken.
    DesMd5 = 3, 8, "des-cbc-md5", "des";
    /// RFC 3962.
    Aes128Sha1 = 17, 16, "aes128-cts-hmac-sha1-96", "aes128-cts";
    /// RFC 3962: what every peer understands.
    Aes256Sha1 = 18, 32, "aes256-cts-hmac-sha1-96", "aes256-cts";
    /// RFC 8009. OpenAFS 1.8 cannot open tickets of it.
    Aes128Sha2 = 19, 16, "aes128-cts-hmac-sha256-128", "aes128-sha2";
    /// RFC 8009. OpenAFS 1.8 cannot open tickets of it.
    Aes256Sha2 = 20, 32, "aes256-cts-hmac-sha384-192", "aes256-sha2";
    /// RFC 4757; weak, but what old Windows domains have.
    Rc4 = 23, 16, "arcfour-hmac", "rc4-hmac";
}

impl EncryptionType {
    /// The type with this number, if it is known here.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|etype| etype.number() == number)
    }

    /// Whether it is single DES.
    #[must_use]
    pub const fn is_des(self) -> bool {
        matches!(self, Self::DesCrc | Self::DesMd4 | Self::DesMd5)
    }
}

impl fmt::Display for EncryptionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No encryption type known here is called so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a known encryption type; use aes256-cts-hmac-sha1-96, which every peer \
     understands"
)]
pub struct UnknownEncryptionType(String);

impl FromStr for EncryptionType {
    type Err = UnknownEncryptionType;

    /// Takes the name, the short name of MIT's tools, or the number.
    fn from_str(text: &str) -> Result<Self, UnknownEncryptionType> {
        let number = text.parse().ok();
        Self::ALL
            .iter()
            .copied()
            .find(|etype| {
                [etype.name(), etype.short_name()].contains(&text) || number == Some(etype.number())
            })
            .ok_or_else(|| UnknownEncryptionType(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for &etype in EncryptionType::ALL {
            assert_eq!(EncryptionType::from_number(etype.number()), Some(etype));
            for text in [
                etype.name(),
                etype.short_name(),
                &etype.number().to_string(),
            ] {
                assert_eq!(text.parse(), Ok(etype));
            }
        }
        assert_eq!("aes256-cts".parse(), Ok(EncryptionType::Aes256Sha1));
        assert!("camellia256-cts".parse::<EncryptionType>().is_err());
        assert_eq!(EncryptionType::from_number(16), None);
    }
}
