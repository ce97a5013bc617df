//! One place of one file of a partition is damaged: what is read is what was written, or an error says
//! that it cannot be read. Never a signal, never a wrong byte.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afar_store::{
    CheckOptions, NewClone, NewVnode, NewVolume, Partition, PartitionOptions, StoreOptions, Volume,
};
use afar_types::{PtsId, VolumeId, VolumeType};
use fastrand::Rng;

/// Damages that are tried, unless the environment says how many.
const TRIES: usize = 60;
const VOLUMES: u32 = 3;
const FILES: u32 = 40;

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn options() -> PartitionOptions {
    PartitionOptions::default().map_size(1 << 28).unwrap()
}

fn name(file: u32) -> Vec<u8> {
    format!("a file of number {file}").into_bytes()
}

/// What a file of a volume has: short ones lie in rows, longer ones in segments.
fn content(volume: u32, file: u32) -> Vec<u8> {
    let len = [10, 700, 5_000, 300_000][(file % 4) as usize];
    let mut random = Rng::with_seed(u64::from(volume) << 32 | u64::from(file));
    (0..len).map(|_| random.u8(..)).collect()
}

fn is_clone(volume: u32) -> bool {
    volume >= 100
}

/// Volumes, each with a clone.
fn make(path: &Path) {
    let partition = Arc::new(Partition::init(path, &options()).unwrap());
    for id in 1..=VOLUMES {
        let volume = partition
            .create_volume(&NewVolume::new(VolumeId(id), format!("v{id}")).max_quota(0))
            .unwrap();
        for file in 0..FILES {
            if file == FILES / 2 {
                let clone = NewClone::new(
                    VolumeId(100 + id),
                    format!("v{id}.readonly"),
                    VolumeType::ReadOnly,
                );
                volume.make_clone(&clone).unwrap();
            }
            let new = NewVnode::new(PtsId(1), 0o644);
            let made = volume
                .create_file(volume.root(), &name(file), &new)
                .unwrap();
            let data = content(id, file);
            volume
                .write(made.vnode.fid, 0, &data, &StoreOptions::default())
                .unwrap();
        }
    }
}

fn read_all(dir: &Path, files: &mut Files, below: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = below.join(path.file_name().unwrap());
        if path.is_dir() {
            read_all(&path, files, &name);
        } else {
            files.insert(name, fs::read(&path).unwrap());
        }
    }
}

fn write_all(dir: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn damage(path: &Path, random: &mut Rng) -> String {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let at = random.u64(..len);
    match random.u8(..8) {
        0..3 => {
            let page = at & !4095;
            let end = usize::try_from((len - page).min(4096)).unwrap();
            let zeros = random.bool();
            let noise: Vec<u8> = (0..end)
                .map(|_| if zeros { 0 } else { random.u8(..) })
                .collect();
            file.write_all_at(&noise, page).unwrap();
            format!("page at {page}")
        }
        3 => {
            file.set_len(at).unwrap();
            format!("cut off at {at}")
        }
        _ => {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << random.u8(..8)], at)
                .unwrap();
            format!("bit at {at}")
        }
    }
}

/// How many files of a volume cannot be read.
fn unreadable(volume: &Volume, id: u32) -> u32 {
    let mut failed = 0;
    let (of, files) = match is_clone(id) {
        true => (id - 100, FILES / 2),
        false => (id, FILES),
    };
    for file in 0..files {
        let read = volume
            .lookup(volume.root(), &name(file))
            .and_then(|fid| volume.read_all(fid, 1 << 20));
        match read {
            Ok(data) => assert!(data == content(of, file), "volume {id}, file {file}"),
            Err(afar_store::StoreError::NotFound(name)) => panic!("volume {id} has lost {name}"),
            Err(_) => failed += 1,
        }
    }
    failed
}

#[test]
fn damage_of_any_file_is_found_or_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    make(&path);
    let mut files = Files::new();
    read_all(&path, &mut files, Path::new(""));
    let names: Vec<&PathBuf> = files
        .iter()
        .filter(|(_, b)| !b.is_empty())
        .map(|(n, _)| n)
        .collect();
    let tries = std::env::var("AFAR_DAMAGE_TRIES").map_or(TRIES, |tries| tries.parse().unwrap());
    let mut random = Rng::with_seed(11);
    let (mut refused, mut found) = (0, 0);
    for attempt in 0..tries {
        let other = tempfile::tempdir().unwrap();
        let path = other.path().join("a");
        write_all(&path, &files);
        let name = names[random.usize(..names.len())];
        let what = damage(&path.join(name), &mut random);
        eprintln!("{attempt}: {}: {what}", name.display());
        let partition = match Partition::open(&path, &options()) {
            Ok(partition) => Arc::new(partition),
            Err(error) => {
                assert!(
                    error.to_string().contains(&*path.to_string_lossy()),
                    "{error}"
                );
                refused += 1;
                continue;
            }
        };
        let ids = (1..=VOLUMES).flat_map(|id| [id, 100 + id]);
        let mut failed = 0;
        for id in ids {
            match partition.volume(VolumeId(id)) {
                Ok(volume) => failed += unreadable(&volume, id),
                Err(afar_store::StoreError::NoVolume(id)) => panic!("volume {id} is lost"),
                Err(_) => failed += 1,
            }
        }
        if let Ok(volume) = partition.volume(VolumeId(1)) {
            let new = NewVnode::new(PtsId(1), 0o644);
            let wrote = volume.create_file(volume.root(), b"written after", &new);
            found += u32::from(wrote.is_err());
        }
        let report = partition.check(&CheckOptions::default(), &mut |_| ());
        let sound = report.is_ok_and(|report| report.problem_count == 0);
        found += u32::from(failed > 0 || !sound);
    }
    eprintln!("{refused} refused, {found} found, of {tries}");
    assert!(refused > 0 && found > 0);
}

/// What is cut off or overwritten where nothing else looks is named with file and page.
#[test]
fn a_damaged_page_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    make(&path);
    let data = path.join("meta/data.mdb");
    let file = File::options().write(true).open(&data).unwrap();
    let len = file.metadata().unwrap().len();
    for page in 2..len / 4096 {
        file.write_all_at(&[0xff; 64], page * 4096).unwrap();
    }
    let error = Partition::open(&path, &options())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("data.mdb: page ") && error.contains("checksum"),
        "{error}"
    );
    file.set_len(len / 2).unwrap();
    let error = Partition::open(&path, &options())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("truncated at page"), "{error}");
}
