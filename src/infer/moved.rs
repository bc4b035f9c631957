//! A reduction that comes too late: what is added or applied before it belongs after it. In: an operation on a pending sum, and the text
//! around it. Out: a remedy that reduces the sum first. Never: a reduction that is not there already. Next: `repair.rs`.

use super::finding::{Remedy, Repair};
use super::machine::Machine;
use super::ops::Operand;
use crate::ir::StmtId;
use crate::source::{Name, Place, Span};
use crate::types::{Axis, AxisType, Reason, Spmd};

impl Machine<'_> {
    /// `reduce(p + b)` as `reduce(p) + b`, and `a = f(p)` with `reduce(a)` further down as `a = f(reduce(p))` with `a`.
    pub fn moved_reduction(&self, id: StmtId, axis: &Axis, operands: &[Operand]) -> Option<Repair> {
        let summed = |o: &&(usize, &Operand)| o.1.ty.get(axis).known() == Some(Spmd::Partial);
        let varying = |o: &&(usize, &Operand)| o.1.ty.get(axis).set == AxisType::V;
        let all: Vec<(usize, &Operand)> = operands.iter().enumerate().collect();
        let mut candidates = all.iter().filter(summed);
        let (at, _) = match (candidates.next(), candidates.next()) {
            (Some(one), None) => *one,
            (None, _) if all.iter().filter(varying).count() == 1 => *all.iter().find(varying)?,
            _ => return None,
        };
        // What is stored in parts stays so: only a computed value is summed.
        let origin = operands[at].ty.get(axis).origin.as_ref();
        if origin.is_some_and(|o| matches!(o.reason, Reason::Parameter | Reason::Whole(_) | Reason::Unmarked(_))) {
            return None;
        }
        let (whole, operand) = (self.place(id), self.operand_place(id, operands, at));
        let text = self.files[whole.file].whole();
        let (start, end) = (whole.span.start as usize, whole.span.end as usize);
        let (from, to) = (operand.span.start as usize, operand.span.end as usize);
        if operand.file != whole.file || from < start || to > end {
            return None;
        }
        let (head, value, tail) = (text.get(start..from)?, text.get(from..to)?, text.get(to..end)?);
        let (callee_at, callee) = self.reduction_before(text.get(..start)?)?;
        let rest = arguments_until_close(text.get(end..)?)?;
        let template = format!("{head}{callee}({value}{rest}){tail}");
        if template.contains(['\n', '#', '{']) {
            return None;
        }
        let span = Span::new(u32::try_from(callee_at).ok()?, u32::try_from(end + rest.len() + 1).ok()?);
        let remedy = Remedy {
            place: Place { file: whole.file, span },
            template,
            axis: Name::from(axis.name()),
            made: None,
            import: None,
            class: (at, None, Name::from("moved")),
            certain: true,
        };
        Some(Repair { text: remedy.template.clone(), remedy: Some(remedy), foreign: None })
    }

    /// The reduction whose arguments begin where a text ends.
    fn reduction_before<'t>(&self, before: &'t str) -> Option<(usize, &'t str)> {
        let head = before.strip_suffix('(')?;
        let at = head.rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').map_or(0, |i| i + 1);
        let at = if head.is_char_boundary(at) { at } else { return None };
        let callee = &head[at..];
        let name = callee.rsplit('.').next().filter(|name| !name.is_empty())?;
        let reduces = |op: &str| op == "all_reduce" || op == "reduce_scatter";
        let known = |r: &&std::sync::Arc<crate::rules::CollectiveRule>| {
            r.form == crate::rules::Form::Result && reduces(&r.op) && r.name.rsplit('.').next() == Some(name)
        };
        self.rules.collectives().find(known).map(|_| (at, callee))
    }
}

/// `, group=g` of `, group=g) + 1`; nothing if the call goes on otherwise.
fn arguments_until_close(text: &str) -> Option<&str> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' if depth == 0 => {
                let rest = &text[..at];
                return (rest.is_empty() || rest.starts_with(',')).then_some(rest);
            }
            ')' | ']' => depth = depth.checked_sub(1)?,
            '\n' | '#' | '"' | '\'' => return None,
            _ => {}
        }
    }
    None
}
