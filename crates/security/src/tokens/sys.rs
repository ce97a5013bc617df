//! The system calls behind the kernel's keyrings and OpenAFS's module, which no safe crate has.
#![expect(
    unsafe_code,
    reason = "key types like rxrpc's, and OpenAFS's ioctl, have no safe wrappers"
)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use zeroize::Zeroizing;

/// A key or keyring of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyId(i32);

impl KeyId {
    /// The keyring of the session.
    pub(super) const SESSION: Self = Self(-3);
    /// The keyring of the user.
    pub(super) const USER: Self = Self(-4);

    /// The key of this number, as `/proc/keys` lists it in hexadecimal.
    pub(super) fn listed(text: &str) -> Option<Self> {
        u32::from_str_radix(text, 16)
            .ok()
            .map(|number| Self(number.cast_signed()))
    }
}

const GET_KEYRING_ID: libc::c_long = 0;
const SETPERM: libc::c_long = 5;
const DESCRIBE: libc::c_long = 6;
const UNLINK: libc::c_long = 9;
const SEARCH: libc::c_long = 10;
const READ: libc::c_long = 11;
const SET_TIMEOUT: libc::c_long = 15;

/// The call that hands a pioctl to OpenAFS's module.
const AFSCALL_PIOCTL: libc::c_long = 20;
/// `_IOW('C', 1, void *)`
const VIOC_SYSCALL: libc::c_ulong = iow(b'C', 1, size_of::<usize>());

/// A number of the `V` family of pioctls.
pub(super) const fn vice(number: u8) -> libc::c_ulong {
    iow(b'V', number, size_of::<ViceIoctl>())
}

/// The same of the `C` family.
pub(super) const fn common(number: u8) -> libc::c_ulong {
    iow(b'C', number, size_of::<ViceIoctl>())
}

/// `_IOW` of Linux on all machines afar is built for.
const fn iow(family: u8, number: u8, size: usize) -> libc::c_ulong {
    (1 << 30)
        | ((size as libc::c_ulong) << 16)
        | ((family as libc::c_ulong) << 8)
        | number as libc::c_ulong
}

/// What a pioctl is given and gives.
#[repr(C)]
struct ViceIoctl {
    input: *const u8,
    output: *mut u8,
    input_size: u16,
    output_size: u16,
}

/// The arguments of a call to the module, in its order.
#[repr(C)]
struct Arguments {
    parameters: [libc::c_long; 4],
    call: libc::c_long,
}

/// The real number of a keyring. A process without a session's keyring gets its user's, which is
/// not there to be made: one made for the occasion would end with the process.
pub(super) fn keyring(special: KeyId) -> io::Result<KeyId> {
    // SAFETY: this call takes numbers only.
    let found = unsafe { libc::syscall(libc::SYS_keyctl, GET_KEYRING_ID, special.0, 0) };
    id(found)
}

/// Adds a key, or replaces what the one of this type and description holds.
pub(super) fn add_key(
    kind: &CStr,
    description: &CStr,
    payload: &[u8],
    keyring: KeyId,
) -> io::Result<KeyId> {
    // SAFETY: both texts end with NUL, and the payload is as long as is said; the kernel copies
    // all three before the call returns.
    let added = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            kind.as_ptr(),
            description.as_ptr(),
            payload.as_ptr(),
            payload.len(),
            keyring.0,
        )
    };
    id(added)
}

/// The key of this type and description in a keyring or one linked from it.
pub(super) fn search(keyring: KeyId, kind: &CStr, description: &CStr) -> io::Result<KeyId> {
    // SAFETY: both texts end with NUL and outlive the call.
    let found = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            SEARCH,
            keyring.0,
            kind.as_ptr(),
            description.as_ptr(),
            0,
        )
    };
    id(found)
}

/// What a key holds; of a keyring, the numbers of its keys. At most `limit` bytes.
pub(super) fn read(key: KeyId, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    fill(READ, key, limit)
}

/// A key's type, owner, rights and description: `user;0;0;3f010000;afar:example.org`.
pub(super) fn describe(key: KeyId) -> io::Result<Vec<u8>> {
    let mut text = fill(DESCRIBE, key, 4096)?.to_vec();
    if text.last() == Some(&0) {
        text.pop();
    }
    Ok(text)
}

fn fill(operation: libc::c_long, key: KeyId, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut buffer = Zeroizing::new(vec![0; limit]);
    // SAFETY: the kernel writes at most as many bytes as the buffer is said to have.
    let length = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            operation,
            key.0,
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    if length > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    buffer.truncate(length);
    Ok(buffer)
}

/// The keys of a keyring.
pub(super) fn list(keyring: KeyId) -> io::Result<Vec<KeyId>> {
    let numbers = read(keyring, 64 << 10)?;
    let (numbers, _) = numbers.as_chunks::<4>();
    let keys = numbers
        .iter()
        .map(|number| KeyId(i32::from_ne_bytes(*number)));
    Ok(keys.collect())
}

/// Takes a key out of a keyring.
pub(super) fn unlink(key: KeyId, keyring: KeyId) -> io::Result<()> {
    // SAFETY: this call takes numbers only.
    done(unsafe { libc::syscall(libc::SYS_keyctl, UNLINK, key.0, keyring.0) })
}

/// Sets who may do what with a key.
pub(super) fn set_rights(key: KeyId, rights: u32) -> io::Result<()> {
    // SAFETY: this call takes numbers only.
    done(unsafe { libc::syscall(libc::SYS_keyctl, SETPERM, key.0, rights) })
}

/// Has the kernel take this thread for this user's where files and keys are concerned. Unlike a
/// thread with the user's number in full, he can send no signals to it.
pub(super) fn become_for_files(uid: u32) -> io::Result<()> {
    // SAFETY: these calls take numbers only, and change this thread alone. The first returns no
    // error; the second, which nobody may do, returns what holds now.
    let now = unsafe {
        libc::setfsuid(uid);
        libc::setfsuid(u32::MAX)
    };
    match now.cast_unsigned() == uid {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Has the kernel drop a key after so many seconds.
pub(super) fn set_timeout(key: KeyId, seconds: u32) -> io::Result<()> {
    // SAFETY: this call takes numbers only.
    done(unsafe { libc::syscall(libc::SYS_keyctl, SET_TIMEOUT, key.0, seconds) })
}

/// Opens a file by the C library's `open`, which a test may stand in for.
pub(super) fn open(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the path ends with NUL, and without O_CREAT there is no further argument.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Makes a pioctl without a path through the module's file. The answer is what of `output` the
/// module wrote to: it does not say how much that is.
pub(super) fn pioctl(
    file: &OwnedFd,
    command: libc::c_ulong,
    input: &[u8],
    output: &mut [u8],
) -> io::Result<()> {
    let size = |length: usize| u16::try_from(length).map_err(|_| io::ErrorKind::InvalidInput);
    let block = ViceIoctl {
        input: input.as_ptr(),
        output: output.as_mut_ptr(),
        input_size: size(input.len())?,
        output_size: size(output.len())?,
    };
    // The module takes pointers and numbers as words, the last parameter first.
    let words = [
        0,
        &raw const block as libc::c_long,
        command.cast_signed(),
        0,
    ];
    let arguments = Arguments {
        parameters: words,
        call: AFSCALL_PIOCTL,
    };
    // SAFETY: the arguments, the block and both buffers outlive the call; the module reads as much
    // as the input is said to have and writes at most as much as the output is.
    done(unsafe { libc::ioctl(file.as_raw_fd(), VIOC_SYSCALL, &raw const arguments) }.into())
}

fn id(result: libc::c_long) -> io::Result<KeyId> {
    match i32::try_from(result) {
        Ok(number) if result >= 0 => Ok(KeyId(number)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn done(result: libc::c_long) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
