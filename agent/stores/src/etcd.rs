//! etcd.
