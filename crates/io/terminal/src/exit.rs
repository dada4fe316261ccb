//! Exit codes that every command has in common. 0 is a success.

/// Something went wrong while it ran; or what was looked for (`doctor`) was found.
pub const FAILED: u8 = 1;
/// The configuration, the arguments or a file are wrong: nothing was done.
pub const MALFORMED: u8 = 2;
/// No daemon answers.
pub const NO_DAEMON: u8 = 4;
/// SIGINT or SIGTERM ended it before it was done: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;
