//! Words of families 4xx and 5xx: contracts, annotations, arguments of typing calls. In: findings. Out: drafts. Never: detection.
//! Next: `mod.rs`.

use super::super::codes;
use super::{Draft, Words, label, reason, state_words};
use crate::infer::finding::{AnnotationName, AnnotationProblem, ArgumentProblem, Declared, Finding, FindingKind};
use crate::source::Label;
use crate::types::{AxisState, Reason};

impl Words<'_> {
    pub fn contract(&self, finding: &Finding) -> Draft {
        match &finding.kind {
            FindingKind::DeclaredMismatch { axis, what, declared, found, declared_at } => {
                let name = self.name(found);
                let (is, said) = (state_words(&found.state), state_words(declared));
                let (code, title) = declared_title(*what, &name, (&is, &said), axis.name(), declared);
                let mut draft = Draft::new(code, title);
                if *declared_at != finding.place {
                    let message = match &declared.origin {
                        Some(origin) => reason(axis.name(), origin),
                        None => format!("{said} on `{axis}` is declared here"),
                    };
                    draft.labels.push(Label { place: *declared_at, message });
                }
                if found.place != Some(finding.place) {
                    draft.labels.extend(label(found.place, format!("{is} on `{axis}`")));
                }
                self.provenance(axis.name(), &found.state, finding, &mut draft.labels);
                draft
            }
            FindingKind::BadArguments { name, problem } => bad_arguments(name, problem),
            FindingKind::UnknownInAnnotation { what, name, near } => {
                let title = match what {
                    AnnotationName::Axis => format!("`{name}` is not an axis of the mesh"),
                    AnnotationName::Variable => format!("the comment types `{name}`, which is not a variable here"),
                    AnnotationName::Flag => format!("`{name}` is not a flag that the code tests"),
                    AnnotationName::Parameter => format!("the signature types `{name}`, which is not a parameter"),
                };
                let mut draft = Draft::new(&codes::UNKNOWN_NAME, title);
                if let Some(near) = near {
                    draft.help.push(format!("did you mean `{near}`?"));
                } else if *what == AnnotationName::Axis {
                    draft.help.push("declare it: `# spmd: mesh NAME = axis, axis`".to_string());
                }
                draft
            }
            FindingKind::AnnotationMisfit { problem } => {
                let title = match problem {
                    AnnotationProblem::TooManyTypes => "more types than variables on the line".to_string(),
                    AnnotationProblem::WrongRank { entries, rank } => {
                        format!("a partition spec with {entries} entries for a tensor with {rank} dims")
                    }
                    AnnotationProblem::RepeatedAxis => "one mesh axis splits two dims of one tensor".to_string(),
                };
                Draft::new(&codes::MISFIT, title)
            }
            FindingKind::UnregisteredFunction { name } => {
                let title = format!("`{name}` is an autograd function without a typing rule, under strict checking");
                Draft::new(&codes::UNREGISTERED_FUNCTION, title)
            }
            _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
        }
    }
}

/// The layer whose contract decided a type.
fn layer(declared: &AxisState) -> &str {
    match declared.origin.as_ref().map(|origin| &origin.reason) {
        Some(Reason::Contract(name)) => name,
        _ => "forward",
    }
}

fn bad_arguments(name: &str, problem: &ArgumentProblem) -> Draft {
    let title = match problem {
        ArgumentProblem::NotAType => format!("`{name}` is given something that is no SPMD type"),
        ArgumentProblem::NotInMesh(axes) => format!("`{name}` is given `{axes}`, which the mesh does not have"),
        ArgumentProblem::ReducedPrecision => {
            format!("`{name}` would sum the gradient in 16 bits, which has to be asked for")
        }
        ArgumentProblem::MissingSource => format!("`{name}` needs `src=`"),
        ArgumentProblem::MissingResult => format!("`{name}` needs `dst=`"),
        ArgumentProblem::UnorderedShards(dim) => {
            format!("dim {dim} is split over several axes without saying in which order")
        }
        ArgumentProblem::NoType(axis) => format!("`{name}` is given a tensor without a type on `{axis}`"),
        ArgumentProblem::RequiresGradient => {
            format!("`{name}` is given a tensor that requires a gradient, whose gradient would be another one")
        }
        ArgumentProblem::NotEqual(axis) => {
            format!("`{name}` takes Replicate for Invariant on `{axis}` and the other way round, and nothing else")
        }
        ArgumentProblem::ShardOf(t) => {
            format!("the partition spec splits over an axis on which the type is said to be {}", t.word())
        }
        ArgumentProblem::CountedFromEnd(dim) => {
            format!("`{name}` is given a dim counted from the end, which is never equal to dim {dim} that is split")
        }
    };
    let mut draft = Draft::new(&codes::COLLECTIVE_ARGUMENTS, title);
    match problem {
        ArgumentProblem::UnorderedShards(_) => {
            draft.help.push("give a `PartitionSpec` with the axes in order, outermost first".to_string())
        }
        ArgumentProblem::NoType(_) => {
            draft.help.push("state the type with `assert_type` before the collective".to_string())
        }
        ArgumentProblem::CountedFromEnd(dim) => draft.help.push(format!("count from the start: `src=S({dim})`")),
        ArgumentProblem::ReducedPrecision => {
            draft.help.push("say in which precision: `backward_options={\"op_dtype\": torch.float32}`".to_string());
        }
        _ => {}
    }
    draft
}

/// What is said of a value that is not what something declares.
fn declared_title(
    what: Declared,
    name: &str,
    (is, said): (&str, &str),
    axis: &str,
    declared: &AxisState,
) -> (&'static codes::Code, String) {
    match what {
        Declared::Comment => {
            (&codes::DECLARED_MISMATCH, format!("{name} is {is} on `{axis}`, not {said} as its comment says"))
        }
        Declared::Assertion => (&codes::DECLARED_MISMATCH, format!("{name} is {is} on `{axis}`, not {said} as stated")),
        Declared::Argument => {
            (&codes::ARGUMENT_MISMATCH, format!("{name} is {is} on `{axis}`, but the function takes {said}"))
        }
        Declared::Return => (
            &codes::RETURN_MISMATCH,
            format!("{name} is {is} on `{axis}`, but the function is declared to return {said}"),
        ),
        Declared::Layer => (
            &codes::RETURN_MISMATCH,
            format!("`{}` returns a value that is {is} on `{axis}`, where this layer gives {said}", layer(declared)),
        ),
        Declared::Ruled => (
            &codes::RETURN_MISMATCH,
            format!(
                "`{}` returns a value that is {is} on `{axis}`, where the rules give {said} for a function of this name",
                layer(declared)
            ),
        ),
    }
}
