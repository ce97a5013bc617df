//! KeyFileExt and KeyFile of OpenAFS.
//!
//! KeyFileExt: the number of records, then each: the length of what is in front of the key (16;
//! more in times to come, to be skipped), what the key is for, its version number, its encryption
//! type, its length, its bytes. KeyFile: the number of keys, then of each the version number and 8
//! bytes; old files have unused room at the end. All numbers have 32 bits, the highest first.

use super::error::Damage;
use super::{KeyKind, Reader, Record};
use crate::kerberos::{EncryptionType, Secret, des};

/// Bytes of a record of KeyFileExt in front of the key's length.
const HEAD: u32 = 16;

/// The keys of a KeyFileExt.
// spec: rxkad#keys
pub(super) fn parse_ext(content: &[u8]) -> Result<Vec<Record>, Damage> {
    let mut reader = Reader(content);
    let announced = reader.u32().ok_or(TOO_SHORT)?;
    let mut records = Vec::new();
    for record in 1.. {
        if records.len() as u64 == u64::from(announced) {
            break;
        }
        let key = ext_record(&mut reader).map_err(|what| Damage { record, what })?;
        records.push(key);
    }
    if reader.0.is_empty() {
        Ok(records)
    } else {
        // A writer that has not yet set the number looks like this.
        Err(Damage {
            record: 0,
            what: "has more than the keys it announces",
        })
    }
}

fn ext_record(reader: &mut Reader<'_>) -> Result<Record, &'static str> {
    const CUT: &str = "is cut off";
    let head = reader.u32().ok_or(CUT)?;
    let more = head
        .checked_sub(HEAD)
        .ok_or("has a header that is too short")?;
    let kind = KeyKind::from_number(reader.u32().ok_or(CUT)?);
    let kvno = reader.u32().ok_or(CUT)?;
    let etype = reader.i32().ok_or(CUT)?;
    reader
        .take(usize::try_from(more).map_err(|_| CUT)?)
        .ok_or(CUT)?;
    let octets = reader.counted().ok_or(CUT)?;
    let known = EncryptionType::from_number(etype).filter(|_| kind == KeyKind::RxkadKrb5);
    if known.is_some_and(|known| known.key_len() != octets.len()) {
        return Err("does not have the length of its encryption type");
    }
    Ok(Record {
        kind,
        kvno,
        etype,
        octets: Secret::new(octets.to_vec()),
    })
}

/// The content of a KeyFileExt with these keys, in the order OpenAFS writes them in.
pub(super) fn write_ext(records: &[Record]) -> Secret {
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| (record.kind.number(), record.kvno, record.etype));
    let len = records.iter().map(|record| 20 + record.octets.len());
    let mut content = Secret::new(Vec::with_capacity(4 + len.sum::<usize>()));
    content.extend_from_slice(&length(records.len()));
    for record in sorted {
        content.extend_from_slice(&HEAD.to_be_bytes());
        content.extend_from_slice(&record.kind.number().to_be_bytes());
        content.extend_from_slice(&record.kvno.to_be_bytes());
        content.extend_from_slice(&record.etype.to_be_bytes());
        content.extend_from_slice(&length(record.octets.len()));
        content.extend_from_slice(&record.octets);
    }
    content
}

/// A count of what came from a file of at most 1 MiB.
fn length(count: usize) -> [u8; 4] {
    u32::try_from(count)
        .expect("key files are small")
        .to_be_bytes()
}

/// The keys of a KeyFile.
pub(super) fn parse_des(content: &[u8]) -> Result<Vec<Record>, Damage> {
    let mut reader = Reader(content);
    let announced = reader.u32().ok_or(TOO_SHORT)?;
    let mut records = Vec::new();
    for record in 1.. {
        if records.len() as u64 == u64::from(announced) {
            break;
        }
        let key = des_record(&mut reader).ok_or(Damage {
            record,
            what: "is cut off",
        })?;
        records.push(key);
    }
    Ok(records)
}

fn des_record(reader: &mut Reader<'_>) -> Option<Record> {
    let kvno = reader.u32()?;
    Some(Record {
        kind: KeyKind::Rxkad,
        kvno,
        etype: 0,
        octets: Secret::new(reader.take(des::LEN)?.to_vec()),
    })
}

const TOO_SHORT: Damage = Damage {
    record: 0,
    what: "has fewer than four bytes",
};
