//! AFS vocabulary and its XDR form.
