//! How an operation fails, without the details.

use afar_store::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    NoVolume,
    Offline,
    VolumeExists,
    NoVnode,
    ReadOnly,
    NotFound,
    Exists,
    BadName,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    OtherDirectory,
    Loop,
    DirectoryFull,
    TooBig,
    OverQuota,
    OutOfRange,
    NewerClone,
}

impl Failure {
    /// Of an error a client can cause; any other is one of the store.
    pub(crate) fn of(error: &StoreError) -> Self {
        match error {
            StoreError::NoVolume(_) => Self::NoVolume,
            StoreError::Offline(_) => Self::Offline,
            StoreError::VolumeExists(_) => Self::VolumeExists,
            StoreError::NoVnode(_) => Self::NoVnode,
            StoreError::ReadOnly(_) => Self::ReadOnly,
            StoreError::NotFound(_) => Self::NotFound,
            StoreError::Exists(_) => Self::Exists,
            StoreError::BadName { .. } => Self::BadName,
            StoreError::NotDirectory(_) => Self::NotDirectory,
            StoreError::IsDirectory(_) => Self::IsDirectory,
            StoreError::NotEmpty(_) => Self::NotEmpty,
            StoreError::OtherDirectory(_) => Self::OtherDirectory,
            StoreError::Loop(_) => Self::Loop,
            StoreError::DirectoryFull(_) => Self::DirectoryFull,
            StoreError::TooBig(_) => Self::TooBig,
            StoreError::OverQuota(..) => Self::OverQuota,
            StoreError::OutOfRange { .. } => Self::OutOfRange,
            StoreError::NewerClone(..) => Self::NewerClone,
            other => panic!("the store fails with {other:?}: {other}"),
        }
    }
}

/// How an operation of the model goes.
pub(crate) type Outcome<T> = Result<T, Failure>;
