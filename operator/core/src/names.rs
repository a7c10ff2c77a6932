//! Names derived from the cluster name.
