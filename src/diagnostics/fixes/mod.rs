//! Edits that repair a finding. In: a finding, and the files. Out: a [`Fix`]: a first edit, other ways to write it, and other repairs that
//! compete with it. Never: a claim that an edit helps; `fix/` applies it and checks the whole project again. Next: `flow.rs` for
//! conversions and collectives, `practice.rs` for the rest.

mod flow;
mod marks;
mod practice;
pub mod text;

pub use practice::without_comment;

use crate::infer::finding::{Finding, FindingKind};
use crate::infer::sharding::found::Sharding;
use crate::source::{Applicability, Edit, Files, Fix};

/// Changes that belong together.
pub type Edits = Vec<Edit>;

/// Edits, and whether they are right wherever they silence the finding.
pub struct Planned {
    edits: Edits,
    certain: bool,
}

impl Planned {
    fn certain(edits: Edits) -> Planned {
        Planned { edits, certain: true }
    }
    fn likely(edits: Edits) -> Planned {
        Planned { edits, certain: false }
    }
}

/// The repair of a finding, if there is one that an edit can make.
pub fn fix(files: &Files, finding: &Finding) -> Option<Fix> {
    let planned = match &finding.kind {
        FindingKind::Practice(mistake) => practice::practice(files, finding.place, mistake),
        FindingKind::Sharding(Sharding::ForwardOnly { differentiable, .. }) => {
            practice::forward_only(files, finding.place, differentiable)
        }
        FindingKind::GradientCount { returned, expected, .. } => {
            practice::gradient_count(files, finding.place, *returned, *expected)
        }
        _ => {
            let flow = flow::flow(files, finding);
            let Some(mut mark) = marks::mark(files, finding) else { return flow };
            // What else the value may need competes with the mark.
            mark.rivals
                .extend(flow.into_iter().flat_map(|f| std::iter::once(f.edits).chain(f.variants).chain(f.rivals)));
            return Some(mark);
        }
    }?;
    let applicability = if planned.certain { Applicability::Safe } else { Applicability::Unsafe };
    Some(Fix { applicability, edits: planned.edits, variants: Vec::new(), rivals: Vec::new() })
}
