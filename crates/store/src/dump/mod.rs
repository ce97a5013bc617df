//! The AFS dump stream: its bytes, read and written.
