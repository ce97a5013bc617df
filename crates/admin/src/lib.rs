//! What `vos`, `pts`, `fs` and `bos` do, as steps that can be resumed.
