//! The data path on real packets: in namespaces, and by test runs of its programs.

mod ages;
mod bad;
mod change;
mod config;
mod detach;
mod doctor;
mod flood;
mod generic;
mod lies;
mod limit;
mod live;
mod mtu;
mod nat;
mod neighbours;
mod packet;
mod passes;
mod refused;
mod rig;
mod signs;
