//! Dump streams: reading ends, skimming agrees with it, and what can be written reads the same.

#![no_main]

use std::io::{BufReader, Read};

use afar_store::dump::{
    DumpError, DumpHeader, DumpReader, DumpWriter, Limits, VnodeRecord, VolumeHeader,
};
use libfuzzer_sys::fuzz_target;

/// A dump header, its volume and time, and the tag of the volume header.
const BEFORE_VOLUME: &[u8] =
    b"\x01\xb3\xa1\x13\x22\0\0\0\x01v\0\0\0\x09t\0\x02\0\0\0\0\0\0\0\x05\x02";

type Dump = (DumpHeader, VolumeHeader, Vec<(VnodeRecord, Vec<u8>)>);

fn read(stream: &[u8], with_data: bool) -> Result<Dump, DumpError> {
    let input = BufReader::with_capacity(16, stream);
    let (mut reader, header) = DumpReader::new(input, Limits::default())?;
    let volume = reader.volume_header()?;
    let mut vnodes = Vec::new();
    while let Some(record) = reader.next_vnode()? {
        let mut data = Vec::new();
        if with_data {
            // A failure comes back from the reader.
            let end = reader.data().read_to_end(&mut data);
            let announced = record.body.as_ref().and_then(|body| body.length);
            assert!(end.is_err() || data.len() as u64 == announced.unwrap_or(0));
        }
        assert!(data.len() <= stream.len());
        vnodes.push((record, data));
    }
    reader.finish()?;
    Ok((header, volume, vnodes))
}

/// Fails for texts that are longer than OpenAFS keeps them, which the reader lets pass.
fn write((header, volume, vnodes): &Dump) -> Result<Vec<u8>, DumpError> {
    let mut writer = DumpWriter::new(Vec::new(), header)?;
    writer.volume_header(volume)?;
    for (record, data) in vnodes {
        writer.vnode(record).expect("a vnode that was read");
        writer.data(data).expect("as much as announced");
    }
    writer.finish()
}

fuzz_target!(|data: &[u8]| {
    // Streams that do not try to start like one start in the volume header.
    let stream = if data.first() == Some(&1) {
        data.to_vec()
    } else {
        [BEFORE_VOLUME, data].concat()
    };
    let skimmed = read(&stream, false);
    match read(&stream, true) {
        Ok(dump) => {
            let records = skimmed.expect("the same without data").2.into_iter();
            assert!(
                records
                    .map(|(record, _)| record)
                    .eq(dump.2.iter().map(|(record, _)| record.clone()))
            );
            if let Ok(again) = write(&dump) {
                assert_eq!(read(&again, true).expect("a dump just written"), dump);
            }
        }
        Err(error) => {
            assert!(error.offset <= stream.len() as u64);
            assert_eq!(
                error.to_string(),
                skimmed.expect_err("the same").to_string()
            );
        }
    }
});
