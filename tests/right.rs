//! Correct programs that look like mistakes. In: `tests/right`: training code in unusual but right ways, by an author who looked for false
//! alarms and had read neither the rules nor the source. Out: which of them have a finding: those of [`LOUD`] and no other. Never: a
//! program that some rank gets wrong. Next: `tests/right/README.md`.

mod support;

use spmd_check::rules::builtin;

/// Programs with a finding. # bug: terms that each rank
/// weighs by a gate of its own, and a count that is summed as a part of what it is unbound from.
const LOUD: [&str; 2] = ["tests/right/gate_of_own_expert.py", "tests/right/slice_view_unbind_view.py"];

#[test]
fn correct_programs_are_silent() {
    let rules = builtin();
    let all = support::files_below("tests/right", ".py");
    assert!(all.len() > 150, "the programs are there");
    let is_loud = |path: &&String| !support::checked(&rules, path).1.is_empty();
    let loud: Vec<&String> = all.iter().filter(is_loud).collect();
    assert_eq!(loud, LOUD, "false alarms");
}
