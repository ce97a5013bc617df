//! Location entries of all three forms, and what clients make of them.

#![no_main]

use afar_types::{NvldbEntry, UvldbEntry, VldbEntry, VldbEntryO, VolumeType};
use afar_xdr::{Decode, Decoder};
use libfuzzer_sys::fuzz_target;

fn check<T: Decode>(data: &[u8])
where
    VldbEntry: for<'a> TryFrom<&'a T>,
{
    // Short inputs are taken to end in zeros, as all forms have a fixed size.
    let mut bytes = data.to_vec();
    bytes.resize(T::MIN_LEN, 0);
    let entry = T::decode(&mut Decoder::new(&bytes)).expect("entries of the right size decode");
    let Ok(entry) = VldbEntry::try_from(&entry) else {
        return;
    };
    assert!(entry.sites.len() <= 13);
    for kind in VolumeType::ALL {
        assert!(entry.sites_of(kind).count() <= entry.sites.len());
        if let Some(id) = entry.id_of(kind) {
            assert!(entry.kind_of(id).is_some());
        }
    }
    for site in &entry.sites {
        assert!(!site.server.to_string().is_empty() && !site.partition.to_string().is_empty());
    }
    assert!(entry.name.to_string().chars().count() <= 65);
}

fuzz_target!(|data: &[u8]| {
    check::<VldbEntryO>(data);
    check::<NvldbEntry>(data);
    check::<UvldbEntry>(data);
});
