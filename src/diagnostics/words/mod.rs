//! The words of each finding. In: a finding. Out: a diagnostic: what is wrong (title), why (labels, notes), what to do (help).
//! Never: detection. Titles stand alone: the consequence in the user's names, axis in backticks, lowercase, no period.
//! Next: `operator.rs`, `collective.rs`, `contract.rs`.

mod autograd;
mod autograd_claims;
pub use autograd::chain;
mod collective;
mod contract;
mod conversion;
mod declared;
mod dtensor;
mod dtensor_stated;
mod layout;
mod operator;
mod practice;
mod practice_backwards;
mod practice_calls;
mod practice_coming;
mod practice_groups;
mod practice_lapses;
mod practice_omissions;
mod practice_pieces;
mod practice_placements;
mod practice_scales;
mod practice_slips;
mod practice_training;
mod practice_unlike;
mod practice_unshared;
mod rehearsal;
mod scale;
mod sharding;

use super::codes::{self, Code};
use super::fixes;
use super::when::{Configurations, Known, configurations};
use crate::infer::finding::{Finding, FindingKind, OperandAt};
use crate::source::{Diagnostic, Files, Label, Place, Severity, Span};
use crate::syntax::{ProblemKind, SyntaxProblem};
use crate::types::{AxisState, AxisType, Origin, Reason, Spmd};
use std::sync::Arc;

/// A further place with what it has to do with a finding.
fn spot(place: Place, message: String) -> Label {
    Label { place, message }
}

/// What a family of findings fills in.
pub struct Draft {
    pub code: &'static Code,
    pub title: String,
    /// Words under the primary span.
    pub primary: String,
    pub labels: Vec<Label>,
    pub notes: Vec<String>,
    pub help: Vec<String>,
    /// The primary place, if it is not the place of the finding.
    pub place: Option<Place>,
}

impl Draft {
    pub fn new(code: &'static Code, title: String) -> Draft {
        Draft {
            code,
            title,
            primary: String::new(),
            labels: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
            place: None,
        }
    }
}

/// The diagnostic of a finding.
pub fn describe(files: &Files, finding: &Finding) -> Diagnostic {
    described(files, finding, configurations(finding))
}

/// The same, with configurations that may have been worked out before.
pub fn describe_known(files: &Files, finding: &Finding, known: &mut Known) -> Diagnostic {
    described(files, finding, known.configurations(finding))
}

fn described(files: &Files, finding: &Finding, found_in: Configurations) -> Diagnostic {
    let words = Words { files };
    let draft = match &finding.kind {
        FindingKind::Operator { .. }
        | FindingKind::MissingAxis { .. }
        | FindingKind::NormalisedParts { .. }
        | FindingKind::InPlaceChange { .. } => words.operator(finding),
        FindingKind::CollectiveSource { .. }
        | FindingKind::CollectiveOutput { .. }
        | FindingKind::IllegalConversion { .. }
        | FindingKind::ShardOutOfRange { .. }
        | FindingKind::DimConflict { .. }
        | FindingKind::UnevenShard { .. }
        | FindingKind::BackwardLoss { .. } => words.collective(finding),
        FindingKind::NotAdjoint { .. }
        | FindingKind::ScaledOneWay { .. }
        | FindingKind::BeforeExchange { .. }
        | FindingKind::Misordered { .. }
        | FindingKind::OtherGroup { .. }
        | FindingKind::GradientCount { .. } => words.autograd(finding),
        FindingKind::Misplaced { .. }
        | FindingKind::DeclaredOther { .. }
        | FindingKind::RawInDoubleBackward { .. }
        | FindingKind::CopyLeftOut { .. }
        | FindingKind::DocClaim { .. } => words.autograd_claims(finding),
        FindingKind::DeclaredMismatch { .. }
        | FindingKind::BadArguments { .. }
        | FindingKind::UnknownInAnnotation { .. }
        | FindingKind::AnnotationMisfit { .. }
        | FindingKind::UnregisteredFunction { .. } => words.contract(finding),
        FindingKind::Practice(practice) => words.practice(practice),
        FindingKind::Layout(layout) => words.layout(finding, layout),
        FindingKind::Declaration(mistake) => declared::declaration(mistake),
        FindingKind::Distributed(mistake) => words.distributed(mistake),
        FindingKind::Sharding(mistake) => sharding::sharding(mistake),
    };
    words.finish(finding, draft, found_in)
}

/// The diagnostic of a problem of syntax or of an annotation that does not parse.
pub fn describe_syntax(file: crate::source::FileId, problem: &SyntaxProblem) -> Diagnostic {
    let (code, title) = match problem.kind {
        ProblemKind::SyntaxError => (&codes::SYNTAX_ERROR, format!("syntax error: {}", problem.detail)),
        ProblemKind::TooDeep => (&codes::TOO_DEEP, problem.detail.clone()),
        ProblemKind::BadAnnotation => (&codes::BAD_ANNOTATION, problem.detail.clone()),
        ProblemKind::BadSuppression => (&codes::BAD_SUPPRESSION, problem.detail.clone()),
    };
    Diagnostic {
        code: code.code,
        name: code.name,
        severity: code.severity,
        message: title,
        place: Place { file, span: problem.span },
        primary: String::new(),
        labels: Vec::new(),
        notes: Vec::new(),
        help: Vec::new(),
        when: Vec::new(),
        fix: None,
    }
}

/// Characters of a message; a name of the user may be a whole text.
const LONGEST: usize = 1000;

/// A text without the numbers that tell groups and objects of one name apart: `self.group#12` is `self.group` to the user, and the number
/// is another one after the next change.
fn unnumbered(words: String) -> String {
    let mut out = String::with_capacity(words.len());
    let mut rest = words.as_str();
    while let Some(at) = rest.find('#') {
        let (head, tail) = (&rest[..at], &rest[at + 1..]);
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        // Not the order of nested splits, `S(0)#1`.
        let numbers = head.ends_with(word) || head.ends_with("()");
        let ends = digits > 0 && !tail[digits..].starts_with(word);
        out.push_str(head);
        if numbers && ends {
            rest = &tail[digits..];
        } else {
            out.push('#');
            rest = tail;
        }
    }
    out.push_str(rest);
    out
}

/// Words with names of the user, which may be any string, on one line.
fn on_one_line(words: String) -> String {
    let words = if words.contains('#') { unnumbered(words) } else { words };
    let mut line = match words.contains(char::is_control) {
        true => {
            words.split(char::is_control).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        }
        false => words,
    };
    if let Some((end, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(end);
        line.push_str("...");
    }
    line
}

/// Access to the source text for names.
pub struct Words<'a> {
    files: &'a Files,
}

impl Words<'_> {
    /// The source text of an operand in backticks, or a description.
    pub fn name(&self, operand: &OperandAt) -> String {
        let Some(place) = operand.place else { return "the value".to_string() };
        self.named(place)
    }

    pub fn named(&self, place: Place) -> String {
        let text = self.files[place.file].slice(place.span).trim();
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if one_line.is_empty() {
            return "the value".to_string();
        }
        if one_line.chars().count() > 40 {
            let head: String = one_line.chars().take(37).collect();
            return format!("`{head}...`");
        }
        format!("`{one_line}`")
    }

    /// The source text on one line, without backticks.
    pub fn plain(&self, place: Place) -> String {
        self.named(place).trim_matches('`').to_string()
    }

    /// The test of the `if` whose body a place stands in directly, where it is written on one line: it may be the mistake.
    fn test_around(&self, place: Place) -> Option<Place> {
        let text = self.files[place.file].whole();
        let start = text.get(..place.span.start as usize)?.rfind('\n').map_or(0, |at| at + 1);
        let indent = |line: &str| line.len() - line.trim_start().len();
        let own = indent(text.get(start..)?.lines().next()?);
        let mut end = start;
        for line in text[..start].split_inclusive('\n').rev() {
            end -= line.len();
            let code = line.trim();
            if code.is_empty() || code.starts_with('#') || indent(line.trim_end()) >= own {
                continue;
            }
            let test = code.strip_prefix("if ").or_else(|| code.strip_prefix("elif "))?;
            let test = &test[..test.rfind(':')?];
            let at = end + line.find(test)?;
            return Some(Place { file: place.file, span: Span::new(at as u32, (at + test.len()) as u32) });
        }
        None
    }

    fn finish(&self, finding: &Finding, draft: Draft, found_in: Configurations) -> Diagnostic {
        let mut labels = draft.labels;
        let place = draft.place.unwrap_or(finding.place);
        for step in finding.calls.iter().rev().take(3) {
            if step.place != place {
                labels.push(Label { place: step.place, message: format!("in this call of `{}`", step.callee) });
            }
        }
        for place in &finding.reducers {
            let message = "gradients are summed here, under a condition that leaves it out".to_string();
            labels.push(Label { place: *place, message });
        }
        let when = found_in.when.into_iter().map(on_one_line).collect();
        let notes = draft.notes.into_iter().map(on_one_line).collect();
        let mut help = draft.help;
        match finding.kind.is_of_local_part() {
            true => help.push("`to_local(grad_placements=[Partial()])`, so that its gradient is summed".to_string()),
            false => help.extend(finding.repairs.iter().filter(|r| !r.text.is_empty()).map(|r| self.repair(r))),
        }
        let fix = fixes::fix(self.files, finding);
        let severity =
            if finding.rests_on_hint || found_in.rests_on_callers { Severity::Warning } else { draft.code.severity };
        help = help.into_iter().map(on_one_line).collect();
        labels.iter_mut().for_each(|label| label.message = on_one_line(std::mem::take(&mut label.message)));
        let mut seen: Vec<(Place, String)> = Vec::new();
        labels.retain(|l| {
            let key = (l.place, l.message.clone());
            let fresh = !seen.contains(&key);
            seen.push(key);
            fresh
        });
        Diagnostic {
            code: draft.code.code,
            name: draft.code.name,
            severity,
            message: on_one_line(draft.title),
            place,
            primary: on_one_line(draft.primary),
            labels,
            notes,
            help,
            when,
            fix,
        }
    }

    /// Labels that show where a state comes from: the deciding place first, then where it started. What another function decides is shown
    /// where it reaches the one that the finding is in as well.
    pub fn provenance(&self, axis: &str, state: &AxisState, finding: &Finding, out: &mut Vec<Label>) {
        let Some(origin) = &state.origin else { return };
        let skip = finding.place;
        out.extend(computed_within(origin, finding).map(|at| Label { place: at.place, message: reason(axis, at) }));
        let mut at: Option<&Arc<Origin>> = Some(origin);
        let mut shown = 0;
        while let Some(origin) = at {
            let telling = !matches!(origin.reason, Reason::Computed) || origin.from.is_none();
            if telling && origin.place != skip && shown < 3 {
                out.push(Label { place: origin.place, message: reason(axis, origin) });
                let parted = origin.keeps_part.filter(|at| *at != skip);
                out.extend(parted.map(|place| Label {
                    place,
                    message: "each rank keeps its own part of the gradient: the others' are not summed".to_string(),
                }));
                shown += 1;
            }
            at = origin.from.as_ref();
        }
    }
}

/// The earliest step that computes a value in the function of a finding, where something outside of that function decides its type.
fn computed_within<'o>(origin: &'o Arc<Origin>, finding: &Finding) -> Option<&'o Origin> {
    let function = finding.function?;
    let mut earliest = None;
    for origin in std::iter::successors(Some(origin), |origin| origin.from.as_ref()) {
        match (function.contains(origin.place), &origin.reason) {
            (true, Reason::Computed) => earliest = Some(&**origin),
            (true, _) => return None,
            (false, _) => break,
        }
    }
    earliest.filter(|at| !finding.place.contains(at.place))
}

/// Why a type holds, under the place that decided it.
pub fn reason(axis: &str, origin: &Origin) -> String {
    let what = origin.decided.map_or("known", Spmd::word);
    match &origin.reason {
        Reason::Declared => format!("{what} on `{axis}`, declared here"),
        Reason::Mode(mode) => format!("{what} on `{axis}` in the mode {mode}"),
        Reason::Asserted => format!("{what} on `{axis}`, stated here"),
        Reason::Collective(name) => format!("{what} on `{axis}` after `{name}`"),
        Reason::Computed => format!("{what} on `{axis}`, computed here"),
        Reason::Factory => "equal on every rank: made here".to_string(),
        Reason::Parameter if origin.decided == Some(Spmd::Replicate) => {
            format!("{what} on `{axis}`: marked here, so that its gradient is summed")
        }
        Reason::Parameter => format!("{what} on `{axis}`: partitioned here"),
        Reason::Unmarked(_) => {
            format!("{what} on `{axis}`: whole on every rank and without a mark, so nothing sums its gradient")
        }
        Reason::MarkedWhere => "marked under this condition alone".to_string(),
        Reason::Whole(_) => format!("whole on every rank of `{axis}`: made here"),
        Reason::Narrowed(name) => {
            let last = name.rsplit('.').next().unwrap_or(name).trim_matches('_');
            format!("must be {what} on `{axis}` for `{last}`")
        }
        Reason::RankDependent => format!("differs by rank of `{axis}`"),
        Reason::Contract(name) => format!("{what} on `{axis}` by the contract of `{name}`"),
    }
}

/// A state in words: `Replicate`, `Varying (dim 0 is split)`, `Replicate or Varying`.
pub fn state_words(state: &AxisState) -> String {
    match state.shard {
        Some(dim) if state.set == AxisType::V => format!("Varying (dim {dim} is split)"),
        _ => set_words(state.set),
    }
}

pub fn set_words(set: AxisType) -> String {
    let words: Vec<&str> = set.members().map(Spmd::word).collect();
    match words.as_slice() {
        [] => "nothing".to_string(),
        [one] => (*one).to_string(),
        [init @ .., last] => format!("{} or {last}", init.join(", ")),
    }
}

/// A label on an operand.
pub fn label(place: Option<Place>, message: String) -> Option<Label> {
    place.map(|place| Label { place, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_groups_are_not_shown() {
        let told = |text: &str| unnumbered(text.to_owned());
        assert_eq!(
            told("over `self.group#12`, `get_group()#3` and `Net#4.group`"),
            "over `self.group`, `get_group()` and `Net.group`"
        );
        assert_eq!(told("`S(0)#1`, `a #1`, `x#y`, `x#2y`, `#`"), "`S(0)#1`, `a #1`, `x#y`, `x#2y`, `#`");
    }
}
