//! Groups are made before anything else, by arithmetic on ranks: small jobs are rehearsed, every rank of them, and compared. In: a function
//! that makes process groups. Out: the first configuration in which the groups do not fit the ranks. Never: tensors, the machine, or a guess
//! at what is not known. Source: torch.distributed, `new_group`. Next: `value.rs`, `run.rs`, `names.rs`,
//! `calls.rs`, `builtins.rs`, `choice.rs`, `held.rs`, `verdict.rs`.

mod builtins;
mod calls;
mod choice;
mod held;
mod names;
mod run;
mod value;
mod verdict;

pub use verdict::{Holder, Misfit, RANKS, Rehearsed, Rooted, rehearse};
