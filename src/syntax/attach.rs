//! Comments on their way to the statement or signature they belong to.
//!
//! In: comments placed on logical lines (`comments.rs`), and what lowering says it just emitted. Out: `Func::claims`,
//! `Func::signature`, and complaints about comments that cannot stand where they do. Never: reading text. Next:
//! `lower/stmt.rs`.

use super::{ProblemKind, SyntaxProblem};
use crate::ir::annotation::{Annotation, Clause, ClauseKind, Target, TypedTarget};
use crate::ir::{Claim, ClaimTarget, Func, FuncId, Param, StmtId};
use crate::source::{Idx, IndexVec, Name, Span};
use std::collections::BTreeMap;

/// Where a comment stands, relative to the logical line it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// On a physical line of the logical line.
    Trailing,
    /// On a line of its own above.
    Above,
    /// On a line of its own, the last thing in a block: the logical line is the one before.
    After,
}

/// A comment and its logical line.
pub(super) struct Placed {
    pub annotation: Annotation,
    pub position: Position,
    /// Start of the logical line; `None` in a file without any.
    pub line: Option<u32>,
    /// The physical line of the comment.
    pub physical: Span,
    pub found: Option<(FuncId, StmtId)>,
    pub signature_of: Option<FuncId>,
    pub targets: Vec<ClaimTarget>,
    /// A statement that does nothing before that which is found: what is said of variables that it does not assign holds there.
    pub before: Option<StmtId>,
}

/// When a comment is attached: with the statement on its line, or once that and its blocks are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    OnLine,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StmtKind {
    Return,
    Other,
}

/// A `def`, as far as comments are concerned.
pub(super) struct Header {
    /// Start of the first decorator, or of the `def`.
    pub start: u32,
    pub name_end: u32,
    pub method: bool,
    pub params: Vec<Param>,
}

/// The comments of a file that still need, or have found, their place.
#[derive(Default)]
pub(super) struct Claims {
    placed: Vec<Placed>,
    /// Indexes of `placed` by the start of their logical line.
    by_line: Vec<(u32, usize)>,
    /// What the statement being lowered has assigned so far.
    pub targets: Vec<ClaimTarget>,
    problems: Vec<SyntaxProblem>,
}

impl Claims {
    pub fn new(placed: Vec<Placed>) -> Self {
        let mut by_line: Vec<_> = placed.iter().enumerate().filter_map(|(i, p)| Some((p.line?, i))).collect();
        by_line.sort_unstable();
        Claims { placed, by_line, targets: Vec::new(), problems: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    fn between(&self, start: u32, end: u32) -> impl Iterator<Item = usize> + use<> {
        let first = self.by_line.partition_point(|&(line, _)| line < start);
        let found: Vec<usize> =
            self.by_line[first..].iter().take_while(|&&(line, _)| line < end).map(|&(_, i)| i).collect();
        found.into_iter()
    }

    fn due(&self, at: u32, moment: Moment) -> impl Iterator<Item = usize> + '_ {
        self.between(at, at + 1).filter(move |&i| {
            let placed = &self.placed[i];
            let after = placed.position == Position::After;
            placed.signature_of.is_none() && after == (moment == Moment::After)
        })
    }

    /// Whether a comment waits for the statement that starts at `at`.
    pub fn is_due(&self, at: u32, moment: Moment) -> bool {
        self.by_line.binary_search_by_key(&at, |&(line, _)| line).is_ok() && self.due(at, moment).next().is_some()
            || moment == Moment::OnLine && self.continues(at).is_some()
    }

    /// Comments of the logical line of which an earlier statement was the last so far (`a = 1; b = 2  # spmd: R, R`).
    fn continues(&self, at: u32) -> Option<u32> {
        let last = self.by_line.partition_point(|&(line, _)| line < at).checked_sub(1)?;
        let (line, index) = self.by_line[last];
        let placed = &self.placed[index];
        let same =
            placed.position == Position::Trailing && placed.signature_of.is_none() && at < placed.annotation.span.start;
        (same && placed.physical.start <= at).then_some(line)
    }

    /// Whether a comment on a line of its own waits for the statement that starts at `at`.
    pub fn is_above(&self, at: u32) -> bool {
        self.due(at, Moment::OnLine).any(|i| self.placed[i].position == Position::Above)
    }

    /// Tells such comments which statement stands before theirs.
    pub fn put_before(&mut self, at: u32, stmt: StmtId) {
        let due: Vec<usize> = self.due(at, Moment::OnLine).collect();
        for index in due {
            let placed = &mut self.placed[index];
            placed.before = Some(stmt).filter(|_| placed.position == Position::Above);
        }
    }

    /// Attaches what is due at `at` to a statement. A later statement of the same line takes over.
    pub fn attach(&mut self, at: u32, moment: Moment, kind: StmtKind, func: FuncId, stmt: StmtId) {
        let mut due: Vec<usize> = self.due(at, moment).collect();
        if due.is_empty()
            && moment == Moment::OnLine
            && let Some(line) = self.continues(at)
        {
            due = self.due(line, moment).filter(|&i| self.placed[i].position == Position::Trailing).collect();
        }
        for index in due {
            let targets = self.targets.clone();
            let placed = &mut self.placed[index];
            placed.targets.extend(targets);
            let first = placed.found.replace((func, stmt)).is_none();
            if first {
                let (problems, position) = (&mut self.problems, placed.position);
                placed.annotation.clauses.retain(|clause| match misplaced(clause, position, kind) {
                    Some(detail) => {
                        problems.push(SyntaxProblem::new(ProblemKind::BadAnnotation, clause.span, detail));
                        false
                    }
                    None => true,
                });
            }
        }
    }

    /// Attaches the comments above a definition, on its decorators, and on the lines of its header.
    pub fn attach_signature(&mut self, func: FuncId, header: &Header) {
        for index in self.between(header.start, header.name_end) {
            let placed = &mut self.placed[index];
            if placed.position == Position::After {
                continue;
            }
            placed.signature_of = Some(func);
            let clauses = std::mem::take(&mut placed.annotation.clauses);
            for clause in clauses {
                let (position, physical) = (placed.position, placed.physical);
                match on_signature(clause, position, physical, header) {
                    Ok(clause) => placed.annotation.clauses.push(clause),
                    Err(problem) => self.problems.push(problem),
                }
            }
        }
    }

    /// Hands everything over to the functions; what found no place is a problem.
    pub fn finish(self, funcs: &mut IndexVec<FuncId, Func>, problems: &mut Vec<SyntaxProblem>) {
        problems.extend(self.problems);
        let mut signatures: BTreeMap<FuncId, Vec<Annotation>> = BTreeMap::new();
        let mut claims: BTreeMap<FuncId, Vec<Claim>> = BTreeMap::new();
        for mut placed in self.placed {
            if let (Some(before), Some((func, _))) = (placed.before, placed.found) {
                let earlier = split_earlier(&mut placed, &funcs[func]);
                if !earlier.clauses.is_empty() {
                    let claim = Claim { stmt: before, annotation: earlier, trailing: false, targets: Vec::new() };
                    claims.entry(func).or_default().push(claim);
                    if placed.annotation.clauses.is_empty() {
                        continue;
                    }
                }
            }
            let has_clauses = !placed.annotation.clauses.is_empty();
            match (placed.signature_of, placed.found) {
                (Some(func), _) if has_clauses => signatures.entry(func).or_default().push(placed.annotation),
                (None, Some((func, stmt))) if has_clauses => claims.entry(func).or_default().push(Claim {
                    stmt,
                    annotation: placed.annotation,
                    trailing: placed.position == Position::Trailing,
                    targets: placed.targets,
                }),
                (None, None) => {
                    let detail = "this comment belongs to no statement; put it on the line of an assignment, \
                                  above a statement, or above a `def`";
                    problems.push(SyntaxProblem::new(ProblemKind::BadAnnotation, placed.annotation.span, detail));
                }
                (Some(_), _) | (None, Some(_)) => {}
            }
        }
        for (func, signature) in signatures {
            funcs[func].signature = signature.into();
        }
        for (func, mut claims) in claims {
            claims.sort_by_key(|c| c.stmt.index());
            funcs[func].claims = claims.into();
        }
    }
}

/// Takes what a comment says of variables and attributes that its statement does not assign.
fn split_earlier(placed: &mut Placed, func: &Func) -> Annotation {
    let mut earlier = Annotation { clauses: Vec::new(), ..placed.annotation.clone() };
    let assigned = |typed: &TypedTarget| {
        placed.targets.iter().any(|target| match (target, &typed.target) {
            (ClaimTarget::Local(local), Target::Name(name) | Target::Index(name, _) | Target::Key(name, _)) => {
                func.locals()[*local].name == *name
            }
            (ClaimTarget::Attr(_, attr), Target::Attr(_, path)) => path.last() == Some(attr),
            _ => false,
        })
    };
    let mut kept = Vec::new();
    for Clause { span, kind } in placed.annotation.clauses.drain(..) {
        let ClauseKind::Named(targets) = kind else {
            kept.push(Clause { span, kind });
            continue;
        };
        let (own, others): (Vec<_>, Vec<_>) = targets.into_iter().partition(assigned);
        for (targets, clauses) in [(own, &mut kept), (others, &mut earlier.clauses)] {
            if !targets.is_empty() {
                clauses.push(Clause { span, kind: ClauseKind::Named(targets) });
            }
        }
    }
    placed.annotation.clauses = kept;
    earlier
}

/// Why a clause cannot stand on a statement, if it cannot.
fn misplaced(clause: &Clause, position: Position, kind: StmtKind) -> Option<String> {
    let trailing = position == Position::Trailing;
    match &clause.kind {
        ClauseKind::Bare(_) if !trailing => {
            Some("a comment on its own line must name what it types, as in `# spmd: x: R`".to_string())
        }
        ClauseKind::Bare(_) if kind == StmtKind::Return => {
            Some("a `return` assigns nothing; write `# spmd: -> R` to type what is returned".to_string())
        }
        ClauseKind::Signature { params, .. } if params.is_empty() && trailing && kind == StmtKind::Return => None,
        ClauseKind::Signature { .. } => Some(
            "a signature must stand above a `def` or on its line; on other statements write `name: type`".to_string(),
        ),
        ClauseKind::Bare(_)
        | ClauseKind::Named(_)
        | ClauseKind::Trust(_)
        | ClauseKind::Param { .. }
        | ClauseKind::Mesh { .. }
        | ClauseKind::Alias { .. }
        | ClauseKind::Group { .. }
        | ClauseKind::Flag(_)
        | ClauseKind::Assume(_)
        | ClauseKind::Mode(_)
        | ClauseKind::Extern { .. } => None,
    }
}

/// A clause on a signature; bare types take the name of the parameter on their line.
fn on_signature(clause: Clause, position: Position, physical: Span, header: &Header) -> Result<Clause, SyntaxProblem> {
    let Clause { span, kind } = clause;
    let types = match kind {
        ClauseKind::Bare(types) => types,
        kind => return Ok(Clause { span, kind }),
    };
    let bad = |detail: String| Err(SyntaxProblem::new(ProblemKind::BadAnnotation, span, detail));
    if position == Position::Above {
        return bad("a comment above a `def` must name what it types, as in `# spmd: x: R -> R`".to_string());
    }
    let on_line = |offset: u32| physical.start <= offset && offset < physical.end;
    let own = header.params.iter().enumerate().filter(|&(index, p)| {
        let receiver = index == 0 && header.method && matches!(p.name.as_str(), "self" | "cls");
        !receiver && (on_line(p.span.start) || on_line(p.span.end.saturating_sub(1)))
    });
    let names: Vec<&Name> = own.map(|(_, p)| &p.name).collect();
    match (names.as_slice(), <[_; 1]>::try_from(types)) {
        ([name], Ok([ty])) => {
            let typed = TypedTarget { target: Target::Name((*name).clone()), span: ty.span, ty };
            Ok(Clause { span, kind: ClauseKind::Named(vec![typed]) })
        }
        ([name], Err(_)) => bad(format!("this line has one parameter, `{name}`, but the comment has several types")),
        ([], _) => {
            bad("no parameter stands on this line; name one as in `x: R`, or write `-> R` for the result".to_string())
        }
        ([first, ..], _) => {
            bad(format!("several parameters stand on this line; name the one that is meant, as in `{first}: R`"))
        }
    }
}
