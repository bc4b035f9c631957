//! Correct programs that look like mistakes. In: `tests/right`: training code in unusual but right ways, by an author who looked for false
//! alarms and had read neither the rules nor the source. Out: which of them have a finding: those of [`LOUD`] and no other. Never: a
//! program that some rank gets wrong. Next: `tests/right/README.md`.

mod support;

use spmd_check::rules::builtin;

/// Programs with a finding. # bug: a divisor that a fused optimizer keeps by the name that a gradient scaler uses, terms that each rank
/// weighs by a gate of its own, a learning rate that a loop over groups divides later, and a test that gathers copies. # bug: the number
/// of ranks in the learning rate of a plain optimizer, in an optimizer of one's own, in `out=`, in a slice that is assigned, in a
/// coefficient that clips, and in `step` of a class derived from an optimizer, or put in its place.
const LOUD: [&str; 23] = [
    "tests/right/clip_if_320.py",
    "tests/right/data_slice_320.py",
    "tests/right/div_out_320.py",
    "tests/right/division_in_clip_320.py",
    "tests/right/ema_average_of_grads_320.py",
    "tests/right/fused_grad_scale.py",
    "tests/right/gate_of_own_expert.py",
    "tests/right/grad_scale_in_opt_320.py",
    "tests/right/lr_dataclass_320.py",
    "tests/right/lr_in_param_group_320.py",
    "tests/right/lr_inplace_320.py",
    "tests/right/lr_param_group_over_world.py",
    "tests/right/lr_setter_320.py",
    "tests/right/momentum_manual_320.py",
    "tests/right/monkeypatched_step_320.py",
    "tests/right/mul_out_320.py",
    "tests/right/optimizer_subclass_super_320.py",
    "tests/right/p_minus_lr_over_world_320.py",
    "tests/right/slice_assign_320.py",
    "tests/right/sum_lr_lambda_320.py",
    "tests/right/test_gathers_copies_201.py",
    "tests/right/tok_grad_mul_out_320.py",
    "tests/right/true_divide_320.py",
];

#[test]
fn correct_programs_are_silent() {
    let rules = builtin();
    let all = support::files_below("tests/right", ".py");
    assert!(all.len() > 150, "the programs are there");
    let is_loud = |path: &&String| !support::checked(&rules, path).1.is_empty();
    let loud: Vec<&String> = all.iter().filter(is_loud).collect();
    assert_eq!(loud, LOUD, "false alarms");
}
