//! Words of families 2xx and 301: collectives, conversions, losses. In: findings. Out: drafts. Never: detection. Next: `contract.rs`.

use super::super::codes;
use super::{Draft, Words, label, set_words, state_words};
use crate::infer::finding::{Finding, FindingKind, OperandAt};
use crate::types::{AxisType, Reason, Spmd};

impl Words<'_> {
    pub fn collective(&self, finding: &Finding) -> Draft {
        match &finding.kind {
            FindingKind::CollectiveSource { name, axis, dim: Some(dim), operand, .. } => {
                self.other_dim(finding, name, axis.name(), *dim, operand)
            }
            FindingKind::CollectiveSource { op, name, axis, expected, dim: None, operand } => {
                self.source(finding, op, name, axis.name(), *expected, operand)
            }
            FindingKind::CollectiveOutput { name, axis, expected, operand } => {
                let title = format!(
                    "`{name}` writes a value that is {} on `{axis}` into {}, which is {}",
                    set_words(*expected),
                    self.name(operand),
                    state_words(&operand.state)
                );
                let mut draft = Draft::new(&codes::COLLECTIVE_OUTPUT, title);
                self.provenance(axis.name(), &operand.state, finding, &mut draft.labels);
                draft
            }
            FindingKind::IllegalConversion { name, source, result, expert } => {
                conversion(name, source, result, *expert)
            }
            FindingKind::ShardOutOfRange { dim, rank, operand } => {
                let what = operand.as_ref().map_or_else(|| "the tensor".to_string(), |o| self.name(o));
                let title = format!("S({dim}) splits a dim that {what} does not have: it has {rank}");
                let mut draft = Draft::new(&codes::SHARD_OUT_OF_RANGE, title);
                if *rank > 0 {
                    draft.help.push(format!("dims count from 0 to {}, or from -{rank} to -1", rank - 1));
                }
                draft
            }
            FindingKind::DimConflict { name, argument, given, shard } => {
                let title = format!("`{name}` is told dim {given} by `{argument}` and dim {shard} by S({shard})");
                let mut draft = Draft::new(&codes::DIM_CONFLICT, title);
                draft.help.push(format!("leave out `{argument}`: S({shard}) says it"));
                draft
            }
            FindingKind::UnevenShard { name, axis, dim, size, ranks } => {
                let title = format!(
                    "`{name}` splits dim {dim} of size {size} over the {ranks} ranks of `{axis}`, which do not divide it"
                );
                let mut draft = Draft::new(&codes::UNEVEN_SHARD, title);
                draft.help.push(format!("pad dim {dim} to a multiple of {ranks}, or give the split sizes"));
                draft
            }
            FindingKind::BackwardLoss { axis, operand, returned } => {
                self.loss(finding, axis.name(), operand, *returned)
            }
            _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
        }
    }

    fn source(
        &self,
        finding: &Finding,
        op: &str,
        name: &str,
        axis: &str,
        expected: AxisType,
        operand: &OperandAt,
    ) -> Draft {
        let value = self.name(operand);
        let sums = op == "all_reduce" || op == "reduce_scatter";
        let equal = operand.state.set.leq(AxisType::EQUAL);
        let (code, title) = if sums && equal {
            let title = format!(
                "`{name}` sums {value} over `{axis}`, where every rank already has the same value: the result is too large"
            );
            (&codes::REDUCED_TWICE, title)
        } else if is_marked(operand, expected) {
            let title = format!(
                "`{name}` completes the gradient on `{axis}`, and a mark has that of a parameter before it summed again"
            );
            (&codes::COLLECTIVE_SOURCE, title)
        } else {
            let title = format!(
                "`{name}` takes a value that is {} on `{axis}`, but {value} is {}",
                set_words(expected),
                state_words(&operand.state)
            );
            (&codes::COLLECTIVE_SOURCE, title)
        };
        let mut draft = Draft::new(code, title);
        if operand.place != Some(finding.place) {
            draft.labels.extend(label(operand.place, format!("{} on `{axis}`", state_words(&operand.state))));
        }
        self.provenance(axis, &operand.state, finding, &mut draft.labels);
        draft.labels.extend(label(self.test_around(finding.place), "where this holds".to_string()));
        draft.notes.push(match is_marked(operand, expected) {
            true => {
                format!("backward: the gradient of the marked parameter is N times too large on N ranks of `{axis}`")
            }
            false => consequence((op, name), axis, operand.state.known(), expected, &value),
        });
        if code == &codes::REDUCED_TWICE {
            draft.help.push(format!("{value} needs no reduction over `{axis}`: remove this one, or the one before it"));
        }
        draft
    }

    fn other_dim(&self, finding: &Finding, name: &str, axis: &str, dim: i64, operand: &OperandAt) -> Draft {
        let value = self.name(operand);
        let found = operand.state.shard.map_or_else(|| "another one".to_string(), |d| format!("dim {d}"));
        let title =
            format!("`{name}` takes a value that is split over `{axis}` on dim {dim}, but {value} is split on {found}");
        let mut draft = Draft::new(&codes::COLLECTIVE_SOURCE, title);
        if operand.place != Some(finding.place) {
            draft.labels.extend(label(operand.place, format!("split over `{axis}` on {found}")));
        }
        self.provenance(axis, &operand.state, finding, &mut draft.labels);
        draft.notes.push(format!("forward: parts that were cut along {found} are treated as parts along dim {dim}"));
        draft
    }

    fn loss(&self, finding: &Finding, axis: &str, operand: &OperandAt, returned: bool) -> Draft {
        let value = self.name(operand);
        let replicate = operand.state.known() == Some(Spmd::Replicate);
        let title = if returned {
            format!(
                "the loss {value} is Replicate on `{axis}`: every gradient behind it arrives multiplied by the size of `{axis}`"
            )
        } else if replicate {
            format!(
                "backward() of {value}, which is Replicate on `{axis}`: every gradient arrives multiplied by the size of `{axis}`"
            )
        } else {
            format!("backward() of {value}, which differs by rank of `{axis}`: the loss of the other ranks is left out")
        };
        let mut draft = Draft::new(&codes::BACKWARD_LOSS, title);
        self.provenance(axis, &operand.state, finding, &mut draft.labels);
        draft.notes.push(format!("backward: the gradient starts as 1 on every rank of `{axis}`, which is right for an Invariant or a Partial loss only"));
        draft.help.push(if replicate {
            format!("reduce the loss to Invariant, or call backward() on the sum that is still pending over `{axis}`")
        } else {
            format!(
                "if the loss is the sum over `{axis}`, say so: `reinterpret({}, {axis}, src=V, dst=P)`",
                value.trim_matches('`')
            )
        });
        draft
    }
}

fn conversion(name: &str, source: &str, result: &str, expert: bool) -> Draft {
    if expert {
        let title =
            format!("`{name}` from {source} to {result} changes what the value means, and needs expert_mode=True");
        let mut draft = Draft::new(&codes::EXPERT_CONVERSION, title);
        draft.notes.push(match (source, result) {
            ("R", "P") => "the sum of N equal terms is N times the value".to_string(),
            ("R", "I") => "the gradient, pending as a sum, would be taken for the whole".to_string(),
            ("I", "P") => "all ranks but the first would hold zeros".to_string(),
            ("I", "R") => "the gradient would have to be summed, which `convert` does".to_string(),
            _ => "this is rarely meant in a forward pass".to_string(),
        });
        draft.help.push(match (source, result) {
            ("R", "P") => "to keep the value, use `convert(..., src=R, dst=P)`".to_string(),
            ("R", "V") => "to split a replicated value, use `convert(..., src=R, dst=S(i))`".to_string(),
            ("I", "R") => "use `convert(..., src=I, dst=R)`".to_string(),
            _ => "reduce or split the value instead, or pass expert_mode=True if it is meant".to_string(),
        });
        return draft;
    }
    let title = format!("`{name}` does not go from {source} to {result}");
    let mut draft = Draft::new(&codes::ILLEGAL_CONVERSION, title);
    let help = match (source, result) {
        ("P", "R" | "I") => format!("a pending sum is made whole by `all_reduce(..., src=P, dst={result})`"),
        ("P", _) => format!("a pending sum is made whole and split by `reduce_scatter(..., src=P, dst={result})`"),
        ("R" | "I", _) if name == "all_reduce" || name == "reduce_scatter" => {
            "the value is the same on every rank: there is nothing to sum".to_string()
        }
        ("V", "R" | "I") => format!("different values become one by `all_gather(..., dst={result})`"),
        (s, d) if s.starts_with("S(") && d.starts_with("S(") => {
            "another dim is split by `all_to_all`, which communicates".to_string()
        }
        _ => "`spmd-check rules` lists the pairs that each function takes".to_string(),
    };
    draft.help.push(help);
    draft
}

/// Whether what is Invariant by its use is Replicate because of a parameter whose gradient is summed for a mark.
fn is_marked(operand: &OperandAt, expected: AxisType) -> bool {
    let first = operand.state.origin.as_ref().filter(|_| expected == AxisType::I);
    std::iter::successors(first, |origin| origin.from.as_ref())
        .any(|o| o.reason == Reason::Parameter && o.decided == Some(Spmd::Replicate))
}

/// What goes wrong at run time.
fn consequence((op, name): (&str, &str), axis: &str, found: Option<Spmd>, expected: AxisType, value: &str) -> String {
    match (op, found) {
        ("all_reduce" | "reduce_scatter", Some(Spmd::Replicate | Spmd::Invariant)) => {
            format!("forward: the sum over `{axis}` is N times {value} on N ranks")
        }
        ("all_gather", Some(Spmd::Replicate | Spmd::Invariant)) => {
            format!("forward: N copies of the same {value} are put side by side on N ranks of `{axis}`")
        }
        ("all_gather", Some(Spmd::Partial)) => {
            format!("forward: the terms of a pending sum over `{axis}` are put side by side instead of added")
        }
        (_, Some(Spmd::Replicate)) if expected == AxisType::I => {
            format!(
                "backward: the gradient of {value} is summed over `{axis}` twice, once here and once where it became Replicate"
            )
        }
        (_, Some(Spmd::Invariant)) if expected.contains(Spmd::Replicate) => {
            format!("backward: the gradient of {value} over `{axis}` is a part on each rank, and nothing sums it")
        }
        ("all_reduce" | "reduce_scatter", Some(Spmd::Varying)) if expected == AxisType::P => {
            format!(
                "forward: the ranks of `{axis}` have different parts of {value} along that dim, which a sum adds to each other"
            )
        }
        (_, Some(Spmd::Varying)) => {
            format!("forward: {value} differs between the ranks of `{axis}`; one of the values would be taken for all")
        }
        (_, Some(Spmd::Partial)) => {
            format!("forward: {value} is one term of a sum over `{axis}` that nobody has computed")
        }
        _ => format!("forward and backward of `{name}` are made for another type on `{axis}`"),
    }
}
