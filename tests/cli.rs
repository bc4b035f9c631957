//! Sessions of the built program: what a user types, and what comes back. In: small trees written for each test. Out:
//! exit codes, standard output, standard error. Never: calling into the library. Next: `cli/support.rs` for the
//! harness.

#[path = "cli/adopt.rs"]
mod adopt;
#[path = "cli/advice.rs"]
mod advice;
#[cfg(unix)]
#[path = "cli/atomic.rs"]
mod atomic;
#[path = "cli/baseline.rs"]
mod baseline;
#[path = "cli/cache.rs"]
mod cache;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/files.rs"]
mod files;
#[path = "cli/fix.rs"]
mod fix;
#[cfg(unix)]
#[path = "cli/hostile.rs"]
mod hostile;
#[path = "cli/look.rs"]
mod look;
#[path = "cli/modes.rs"]
mod modes;
#[path = "cli/output.rs"]
mod output;
#[path = "cli/schema.rs"]
mod schema;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/verify.rs"]
mod verify;
