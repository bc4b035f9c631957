//! Collectives that the clock of each rank decides on. In: a function. Out: a collective of all ranks of a group that is reached, or left out,
//! by a test on the time that has gone by on this rank. Never: a time that a call may have made equal before it is tested, a test that
//! ends the program, or a branch that calls something which may hold the counterpart. Next: `flow.rs`.

use super::Found;
use super::coming::Coming;
use super::flow::Flow;
use super::found::Practice;
use super::ranks::{mentions, other_branch_calls};
use super::raw::{Sort, raw};
use super::view::View;
use crate::ir::{CmpOp, Rvalue};
use crate::source::Name;

/// What reads the clock.
const CLOCKS: &[&str] = &[
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.process_time",
    "timeit.default_timer",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
];

/// Words of tests that ask for the number of ranks as well.
const LONE: &[&str] = &["parallel", "world", "gpu", "dist", "initialized", "single", "alone"];

/// A part of the text of every function that reads it.
pub const WORDS: &[&str] = &["time", "monotonic", "perf_counter", "now(", "timer("];

pub fn decided(view: &View<'_>, out: &mut Found) {
    let read = (0..view.steps.len()).find_map(|i| view.value(i).filter(|value| reads_clock(view, value)).map(|_| i));
    let Some(read) = read.filter(|_| !view.func.is_generator) else { return };
    let flow = Flow::new(view, &|view, value| reads_clock(view, value), is_order);
    let clock = Name::from(view.text(view.place(view.steps[read].id)));
    for i in 0..view.steps.len() {
        let Some(call) = view.value(i).and_then(|value| raw(view, value)) else { continue };
        let Some(decided) = flow.decides(view, i).filter(|_| call.sort == Sort::Everyone) else { continue };
        if other_branch_calls(view, &decided.guard) || mentions(view, &decided.guard, LONE) {
            continue;
        }
        let place = decided.test;
        if out.iter().any(|(at, known)| *at == place && matches!(known, Practice::Coming(Coming::ByClock { .. }))) {
            continue;
        }
        let (call_at, exit) = (view.place(view.steps[i].id), decided.exit);
        let mistake = Coming::ByClock { collective: call.name, clock: clock.clone(), call: call_at, exit };
        out.push((place, Practice::Coming(mistake)));
    }
}

fn is_order(op: CmpOp) -> bool {
    matches!(op, CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge)
}

fn reads_clock<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. })
        && view.callee(value).is_some_and(|path| CLOCKS.contains(&path.as_str()))
}
