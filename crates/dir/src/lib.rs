//! AFS directory pages.
