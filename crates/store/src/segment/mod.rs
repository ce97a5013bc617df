//! Segment files: where the records of file data lie.
