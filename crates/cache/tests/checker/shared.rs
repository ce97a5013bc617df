//! Files that every machine replaces, reads and looks at.

use afar_cache::{Errno, Handle, Ino, OpenFlags};

use crate::history::tick;
use crate::worker::{READ, WHO, Worker};

/// Bytes written at a time.
const STEP: usize = 65_536;
/// Bytes read at a time.
const AT_ONCE: u32 = 131_072;

/// The content of this number. 0 is the empty file.
pub(crate) fn content(number: u64) -> Vec<u8> {
    let mut octets = number.to_le_bytes().to_vec();
    let filler = number.to_le_bytes().into_iter().cycle().skip(3);
    octets.extend(filler.take(length(number) - 8));
    octets
}

/// Its length: mostly short.
fn length(number: u64) -> usize {
    let mixed = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    match mixed % 64 {
        // Never more than is read at once: two reads may see two versions.
        0 => 8 + mixed % 100_000,
        _ => 8 + mixed % 3000,
    }
}

/// The number of a content; `None` if it is that of none.
fn number_of(octets: &[u8]) -> Option<u64> {
    let head = octets.get(..8)?;
    let number = u64::from_le_bytes(head.try_into().ok()?);
    (content(number) == octets).then_some(number)
}

/// What bytes are: a content, or what is wrong with it.
pub(crate) fn description(octets: &[u8]) -> String {
    let Some(head) = octets.get(..8) else {
        return format!("{octets:?}");
    };
    let number = u64::from_le_bytes(head.try_into().unwrap());
    if number > 1 << 32 {
        return format!("begins with {head:?}");
    }
    let whole = content(number);
    let same = whole.iter().zip(octets).take_while(|(a, b)| a == b).count();
    let rest = &octets[same..octets.len().min(same + 24)];
    format!(
        "{number} of {} bytes up to {same}, then {rest:?}",
        whole.len()
    )
}

impl Worker {
    /// Replaces a file as a whole.
    pub(crate) async fn replace(&mut self) {
        let place = self.rng.usize(0..self.world.files.len());
        let Ok(_mine) = self.world.sessions[self.machine][place].try_write() else {
            return;
        };
        let (register, number) = (&self.world.files[place], self.world.number());
        let change = register.begin(self.machine, number);
        let begun = self.now();
        match self.put(&format!("file{place}"), &content(number)).await {
            Ok(()) => register.done(change),
            Err(error) => {
                register.in_doubt(change);
                self.excuse("replacing a file", begun, error);
            }
        }
    }

    /// Opens and reads a file.
    pub(crate) async fn read(&mut self) {
        let place = self.rng.usize(0..self.world.files.len());
        let Ok(_nobody) = self.world.sessions[self.machine][place].try_read() else {
            return;
        };
        let (register, begun) = (&self.world.files[place], self.now());
        let seen = register.seen(self.machine);
        let from = self.knows_since(tick());
        let read = self.get(&format!("file{place}")).await;
        let octets = match read {
            Ok(octets) => octets,
            Err(error) => return self.excuse("reading a file", begun, error),
        };
        let allowed = register.allowed(from, seen);
        let number = number_of(&octets);
        let matching = allowed.matching(|value| match number {
            Some(number) => *value == number,
            None => *value == 0 && octets.is_empty(),
        });
        let partly = octets.is_empty() && allowed.unsettled || allowed.doubtful;
        assert!(
            !matching.is_empty() || number.is_none() && partly,
            "machine {} read of file{place} {number:?} ({} bytes: {}), looking from {from}, having seen \
             {seen}; it might see {allowed:?}; the server has counted {}",
            self.machine,
            octets.len(),
            description(&octets),
            self.world.cell.counted(),
        );
        register.saw(self.machine, &matching);
    }

    /// Looks at a file's length.
    pub(crate) async fn look(&mut self) {
        let place = self.rng.usize(0..self.world.files.len());
        let Ok(_nobody) = self.world.sessions[self.machine][place].try_read() else {
            return;
        };
        let (register, begun) = (&self.world.files[place], self.now());
        let seen = register.seen(self.machine);
        let from = self.knows_since(tick());
        let found = self.lookup(Ino::ROOT, &format!("file{place}")).await;
        let size = match found {
            Ok(known) => known.attr.size,
            Err(error) => return self.excuse("looking at a file", begun, error),
        };
        let allowed = register.allowed(from, seen);
        let matching = allowed.matching(|value| match value {
            0 => size == 0,
            number => length(*number) as u64 == size,
        });
        assert!(
            !matching.is_empty() || size == 0 && allowed.unsettled || allowed.doubtful,
            "machine {} found file{place} {size} bytes long, looking from {from}, having seen {seen}; \
             it might see {allowed:?}; the server has counted {}",
            self.machine,
            self.world.cell.counted(),
        );
    }

    /// Replaces what is in a file.
    pub(crate) async fn put(&self, name: &str, data: &[u8]) -> Result<(), Errno> {
        let known = self.lookup(Ino::ROOT, name).await?;
        let flags = OpenFlags {
            write: true,
            truncate: true,
            ..READ
        };
        let opened = self.cache().open_file(WHO, known.attr.ino, flags).await;
        let (handle, _) = opened?;
        let written = self.write_all(handle, 0, data).await;
        let flushed = self.cache().flush(handle, 1).await;
        self.cache().release(handle, None).await;
        written.and(flushed)
    }

    pub(crate) async fn write_all(
        &self,
        handle: Handle,
        at: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let mut at = at;
        for piece in data.chunks(STEP) {
            self.cache().write(handle, at, piece).await?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// All of a file.
    pub(crate) async fn get(&self, name: &str) -> Result<Vec<u8>, Errno> {
        let known = self.lookup(Ino::ROOT, name).await?;
        let opened = self.cache().open_file(WHO, known.attr.ino, READ).await;
        let (handle, _) = opened?;
        let data = self.read_all(handle).await;
        self.cache().release(handle, None).await;
        data
    }

    pub(crate) async fn read_all(&self, handle: Handle) -> Result<Vec<u8>, Errno> {
        let mut data = Vec::new();
        loop {
            let at = data.len() as u64;
            let piece = self.cache().read(handle, at, AT_ONCE).await?;
            data.extend_from_slice(&piece);
            // To ask for more behind the end might be answered from the next version.
            if piece.len() < AT_ONCE as usize {
                return Ok(data);
            }
        }
    }
}
