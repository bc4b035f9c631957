//! What the editor shows under the cursor. In: an offset. Out: the type of the expression there, of its gradient, what decided it, and what
//! a collective does forward and backward. Never: a guess where nothing is known. Next: `words.rs`.

use super::answers::Spot;
use super::types::{FileTypes, Named};
use super::words;
use crate::diagnostics::{conditions, reason};
use crate::infer::Row;
use crate::infer::practice::view::View;
use crate::ir::Rvalue;
use crate::project::FuncRef;
use crate::rules::{CollectiveRule, Entry};
use crate::source::{Files, Name, Span};
use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind};
use std::sync::Arc;

pub fn hover(spot: &Spot<'_>, types: &FileTypes, markdown: bool) -> Option<Hover> {
    let session = &spot.workspace.session;
    let named = spot.named();
    let row = types.at(session, spot.offset, named.as_ref());
    let call = collective(spot, types);
    let of_func = row.is_none().then(|| signature(spot, types, named.as_ref())).flatten();
    let mut text = String::new();
    if let Some(row) = row {
        text.push_str(&of_row(spot.workspace.session.files(), row, &shown(spot, row, named.as_ref())));
    }
    if let Some(lines) = of_func {
        text.push_str(&code(&lines.join("\n")));
    }
    if let Some((rule, axes)) = call {
        text.push_str(&of_collective(&rule, &axes));
    }
    if text.is_empty() {
        return None;
    }
    let value = if markdown { text } else { text.replace("```python\n", "").replace("```\n", "").replace("**", "") };
    let kind = if markdown { MarkupKind::Markdown } else { MarkupKind::PlainText };
    let span = row.map(|row| match &named {
        Some(named) if row.variable == named.text => named.span,
        _ => row.place.span,
    });
    let range = span.or(named.map(|n| n.span)).map(|span| spot.range(span));
    Some(Hover { contents: HoverContents::Markup(MarkupContent { kind, value }), range })
}

fn code(text: &str) -> String {
    format!("```python\n{text}\n```\n")
}

/// What a row is about: the variable, or the text of the expression on one line.
fn shown(spot: &Spot<'_>, row: &Row, named: Option<&Named<'_>>) -> String {
    if !row.variable.is_empty() {
        return row.variable.to_string();
    }
    let text = spot.workspace.session.files()[row.place.file].slice(row.place.span);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match named {
        _ if line.chars().count() <= 60 => line,
        _ => line.chars().take(57).chain("...".chars()).collect(),
    }
}

fn of_row(files: &Files, row: &Row, what: &str) -> String {
    let local = &row.ty.local;
    let Some(ty) = words::notation(local) else { return String::new() };
    let mut text = code(&format!("{what}: {ty}"));
    if let Some(gradient) = words::gradient(local).filter(|_| row.ty.grad != crate::types::Tri::No) {
        text.push_str(&format!("**gradient** `{gradient}`\n\n"));
    }
    if !row.facts.is_empty() {
        let when = conditions(std::slice::from_ref(&row.facts), &[crate::infer::formula::Facts::default()]);
        text.push_str(&format!("**when** {}\n\n", when.join(" or ")));
    }
    for (axis, state) in local.listed().filter(|(_, s)| !s.set.is_unknown()) {
        let Some(origin) = &state.origin else { continue };
        let file = &files[origin.place.file];
        let line = file.position(origin.place.span.start).line;
        text.push_str(&format!("- {} (`{}:{line}`)\n", reason(axis.name(), origin), file.path));
    }
    text
}

/// The collective whose call is the smallest around the cursor, with the axes of its group, if the cursor is on it.
fn collective(spot: &Spot<'_>, types: &FileTypes) -> Option<(Arc<CollectiveRule>, Vec<Name>)> {
    let session = &spot.workspace.session;
    let (at, _) = types.func_at(session, spot.offset)?;
    let view = View::new(session.project(), session.rules(), session.files(), at);
    let around = |span: Span| span.start <= spot.offset && spot.offset <= span.end;
    let mut best: Option<(u32, Arc<CollectiveRule>)> = None;
    for step in 0..view.steps.len() {
        let span = view.place(view.steps[step].id).span;
        let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(step) else { continue };
        if !around(span) || best.as_ref().is_some_and(|(len, _)| *len <= span.len()) {
            continue;
        }
        let rule = match view.ruled(value) {
            Some((_, Some(Entry::Collective(rule)))) => Some(rule.clone()),
            _ => view.collective(value).map(|call| call.rule),
        };
        // An argument under the cursor is not the call.
        let in_arguments = view.func.spans().parts(view.steps[step].id).skip(1).any(around);
        if let Some(rule) = rule.filter(|_| !in_arguments) {
            best = Some((span.len(), rule));
        }
    }
    let (_, rule) = best?;
    let axes = rule.default_group.clone();
    Some((rule, axes))
}

fn of_collective(rule: &CollectiveRule, axes: &[Name]) -> String {
    let name = rule.name.rsplit('.').next().unwrap_or(&rule.name);
    let over = match axes {
        [] => String::new(),
        axes => format!(" over `{}`", axes.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")),
    };
    let mut text = format!("\n**{name}**{over}\n\n");
    for (forward, backward) in words::pairs(rule).iter().take(6) {
        text.push_str(&format!("- forward `{forward}`, backward `{backward}`\n"));
    }
    text
}

/// The signature of the function whose name is under the cursor: where it is defined, or where it is called.
fn signature(spot: &Spot<'_>, types: &FileTypes, named: Option<&Named<'_>>) -> Option<Vec<String>> {
    let session = &spot.workspace.session;
    let named = named?;
    let module = session.module_of(spot.file)?;
    let ir = &session.project().modules[module].ir;
    let last = named.text.rsplit('.').next().unwrap_or(named.text);
    let (func, f) = ir.funcs.iter_enumerated().find(|(_, f)| f.name_span == named.span && f.name == last)?;
    let at = FuncRef { module, func };
    let line = session.files()[spot.file].position(f.name_span.start).line;
    let texts: Vec<String> = types.signature(&ir.qualname(func), line).into_iter().map(str::to_string).collect();
    let derived = types.derived.iter().filter(|row| {
        row.class.module == at.module && f.class == Some(row.class.class) && row.place.span == f.name_span
    });
    let principal = derived.flat_map(|row| &row.cases).filter_map(|case| {
        let signature = case.principal.as_ref()?;
        Some(format!("apply: {}", crate::diagnostics::signature::principal_text(case, signature)))
    });
    let all: Vec<String> = texts.into_iter().chain(principal).collect();
    (!all.is_empty()).then_some(all)
}
