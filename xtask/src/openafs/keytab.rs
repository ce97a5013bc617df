//! Writing a Kerberos key table, the form in which `asetkey` takes a key.

/// Version of the key, its type (aes256-cts-hmac-sha1-96) and length.
pub(super) const KVNO: u8 = 1;
pub(super) const ENCTYPE: u16 = 18;
pub(super) const KEY_BYTES: usize = 32;

/// A key table with one key of one service.
pub(super) fn encode(realm: &str, service: &[&str], key: &[u8; KEY_BYTES]) -> Vec<u8> {
    let mut entry = Vec::new();
    put_len(&mut entry, service.len());
    for part in [&[realm], service].concat() {
        put_len(&mut entry, part.len());
        entry.extend(part.as_bytes());
    }
    // Name type "principal", then a time stamp of no meaning here.
    entry.extend(1_u32.to_be_bytes());
    entry.extend(0_u32.to_be_bytes());
    entry.push(KVNO);
    entry.extend(ENCTYPE.to_be_bytes());
    put_len(&mut entry, key.len());
    entry.extend(key);

    let mut table = vec![5, 2];
    let len = u32::try_from(entry.len()).expect("a name is short");
    table.extend(len.to_be_bytes());
    table.extend(entry);
    table
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    let len = u16::try_from(len).expect("a name is short");
    bytes.extend(len.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_has_its_length_in_front() {
        let table = encode("R", &["afs", "c"], &[7; KEY_BYTES]);
        assert_eq!(table[..6], [5, 2, 0, 0, 0, 58]);
        assert_eq!(table.len(), 6 + 58);
        assert_eq!(table[6..19], *b"\0\x02\0\x01R\0\x03afs\0\x01c");
        assert_eq!(table[27..32], [1, 0, 18, 0, 32]);
    }
}
