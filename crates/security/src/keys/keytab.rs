//! The keytab of MIT Kerberos and Heimdal, version 2.
//!
//! Two bytes, 5 and 2; then records of a length in front. A negative length is a hole of that many
//! bytes, zero the end. Only the keys of AFS are taken: those of `afs/<cell>` and `afs`.

use super::error::Damage;
use super::{Key, Reader, Record};
use crate::kerberos::{EncryptionKey, EncryptionType};

/// Whether a file begins as keytabs do: as a KeyFileExt it would have 83 million keys.
pub(super) const fn is(content: &[u8]) -> bool {
    matches!(content, [5, 1 | 2, ..])
}

/// The keys of AFS in a keytab. The bytes behind an entry within its record are its version number
/// again, with 32 bits, or what is left of an older entry.
pub(super) fn parse(content: &[u8]) -> Result<Vec<Record>, Damage> {
    let mut reader = Reader(content);
    if reader.array() != Some([5, 2]) {
        return Err(Damage {
            record: 0,
            what: "is a keytab of version 1, whose numbers depend on the machine; rewrite it with \
                   ktutil",
        });
    }
    let mut keys = Vec::new();
    for record in 1.. {
        let damage = |what| Damage { record, what };
        if reader.0.is_empty() {
            break;
        }
        let len = reader.i32().ok_or_else(|| damage("is cut off"))?;
        if len == 0 {
            break;
        }
        let octets = usize::try_from(len.unsigned_abs())
            .ok()
            .and_then(|len| reader.take(len))
            .ok_or_else(|| damage("is cut off"))?;
        if len > 0 {
            let entry = Entry::parse(octets).ok_or_else(|| damage("is longer than its record"))?;
            keys.extend(entry.record().map_err(damage)?);
        }
    }
    Ok(keys)
}

/// What is of interest in an entry.
struct Entry<'a> {
    components: u16,
    service: Option<&'a [u8]>,
    kvno: u32,
    etype: i32,
    key: &'a [u8],
}

impl<'a> Entry<'a> {
    fn parse(octets: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(octets);
        let components = reader.u16()?;
        let _realm = reader.counted_short()?;
        let mut service = None;
        for _ in 0..components {
            let component = reader.counted_short()?;
            service.get_or_insert(component);
        }
        let _name_type = reader.u32()?;
        let _timestamp = reader.u32()?;
        let [short_kvno] = reader.array()?;
        let etype = reader.u16()?.into();
        let key = reader.counted_short()?;
        let long_kvno = reader.u32().filter(|&kvno| kvno != 0);
        Some(Self {
            components,
            service,
            kvno: long_kvno.unwrap_or_else(|| short_kvno.into()),
            etype,
            key,
        })
    }

    /// The key, if it is one of AFS.
    fn record(self) -> Result<Option<Record>, &'static str> {
        if self.service != Some(b"afs") || self.components > 2 {
            return Ok(None);
        }
        let known = EncryptionType::from_number(self.etype);
        if known.is_some_and(|known| known.key_len() != self.key.len()) {
            return Err("does not have the length of its encryption type");
        }
        Ok(Some(Record::of(&Key {
            kvno: self.kvno,
            key: EncryptionKey::new(self.etype, self.key.to_vec()),
        })))
    }
}
