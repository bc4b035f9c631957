//! What the editor offers to do. In: a range of a file and its findings. Out: repairs, suppressions with a reason, signatures as comments. Never:
//! an edit after which a comment would not be read as meant. Next: `source/diagnostic.rs` for repairs.

use super::answers::Spot;
use super::publish;
use super::text::Text;
use super::types::FileTypes;
use super::uri;
use super::words;
use crate::infer::output::Exit;
use crate::ir::{Func, FuncKind};
use crate::project::FuncRef;
use crate::source::{Applicability, Diagnostic, Edit};
use crate::syntax;
use crate::types::LocalType;
use lsp_types::{CodeAction, CodeActionKind, CodeActionOrCommand, Position, Range, TextEdit, Uri, WorkspaceEdit};

/// What stands for the reason until the user writes one.
const REASON: &str = "reason: say here why this is right";

/// The actions for a range. `only`: the kinds that are asked for; none: all.
pub fn actions(
    spot: &Spot<'_>,
    range: Range,
    types: Option<&FileTypes>,
    only: &[CodeActionKind],
) -> Vec<CodeActionOrCommand> {
    let wanted = |kind: &CodeActionKind| {
        only.is_empty()
            || only
                .iter()
                .any(|o| kind.as_str() == o.as_str() || kind.as_str().starts_with(&format!("{}.", o.as_str())))
    };
    let mut out = Vec::new();
    if wanted(&CodeActionKind::QUICKFIX) {
        let here = spot.workspace.found.iter().filter(|found| found.place.file == spot.file);
        for found in here.filter(|found| overlap(spot.range(found.place.span), range)) {
            // The same repair at other places as well: nothing here knows which of them the user means.
            for (at, edits) in
                found.fix.iter().flat_map(|fix| [&fix.edits].into_iter().chain(&fix.variants)).enumerate()
            {
                let fix = found.fix.as_ref().map(|fix| fix.applicability);
                out.extend(fix.and_then(|applicability| repair(spot, found, edits, applicability, at)));
            }
            out.extend(suppression(spot, found));
        }
    }
    if wanted(&CodeActionKind::REFACTOR_REWRITE)
        && let Some(types) = types
    {
        out.extend(signature(spot, types));
    }
    out.into_iter().map(CodeActionOrCommand::CodeAction).collect()
}

fn overlap(a: Range, b: Range) -> bool {
    a.start <= b.end && b.start <= a.end
}

fn edit(edits: Vec<(Uri, TextEdit)>) -> WorkspaceEdit {
    let mut changes = WorkspaceEdit::default().changes.unwrap_or_default();
    for (uri, edit) in edits {
        changes.entry(uri).or_default().push(edit);
    }
    WorkspaceEdit { changes: Some(changes), document_changes: None, change_annotations: None }
}

fn shown(spot: &Spot<'_>, found: &Diagnostic) -> Vec<lsp_types::Diagnostic> {
    let all = publish::of_file(spot.workspace, spot.file, spot.encoding, false);
    let range = spot.range(found.place.span);
    all.into_iter().filter(|d| d.range == range && d.message.starts_with(&found.message)).take(1).collect()
}

/// The repair that comes with a finding.
fn repair(
    spot: &Spot<'_>,
    found: &Diagnostic,
    given: &[Edit],
    applicability: Applicability,
    at: usize,
) -> Option<CodeAction> {
    let mut edits = Vec::new();
    let mut lines = Vec::new();
    for one in given {
        let location = spot.workspace.location(one.place, spot.encoding)?;
        lines.push(location.range.start.line + 1);
        edits.push((location.uri, TextEdit { range: location.range, new_text: one.text.clone() }));
    }
    let text = found.help.first().cloned().unwrap_or_else(|| found.message.clone());
    let place = lines.iter().max().filter(|_| at > 0).map_or(String::new(), |line| format!(" on line {line}"));
    let title = match applicability {
        Applicability::Safe => format!("Repair{place}: {text}"),
        Applicability::Unsafe => format!("Repair{place} (look at it): {text}"),
    };
    Some(CodeAction {
        title,
        kind: Some(CodeActionKind::QUICKFIX),
        diagnostics: Some(shown(spot, found)),
        edit: Some(edit(edits)),
        is_preferred: Some(at == 0),
        ..CodeAction::default()
    })
}

/// A comment at the end of the line of a finding that says why it is no mistake.
fn suppression(spot: &Spot<'_>, found: &Diagnostic) -> Option<CodeAction> {
    if found.code.starts_with("SPMD9") {
        return None;
    }
    let source = spot.workspace.session.text(spot.file);
    let text = Text::new(source, spot.encoding);
    let start = spot.range(found.place.span).start;
    let comment = format!("  # spmd: ignore[{}] {REASON}", found.name);
    // The line of the finding, or one further down that ends its statement, for one inside a string.
    let known = syntax::parse(source).ir.suppressions.len();
    let last = spot.range(found.place.span).end.line.min(start.line + 50);
    let at = (start.line..=last).map(|line| {
        let length = u32::try_from(text.line(line).trim_end().chars().count()).unwrap_or(u32::MAX);
        text.position(line, length)
    });
    let at = at.into_iter().find(|at| {
        let offset = text.offset(*at);
        let (head, tail) = (source.get(..offset).unwrap_or(""), source.get(offset..).unwrap_or(""));
        syntax::parse(&format!("{head}{comment}{tail}")).ir.suppressions.len() == known + 1
    })?;
    let uri = uri::of(spot.workspace.path(spot.file)?)?;
    let new = TextEdit { range: Range { start: at, end: at }, new_text: comment };
    Some(CodeAction {
        title: format!("Suppress `{}` here, with a reason", found.name),
        kind: Some(CodeActionKind::QUICKFIX),
        diagnostics: Some(shown(spot, found)),
        edit: Some(edit(vec![(uri, new)])),
        ..CodeAction::default()
    })
}

/// The inferred signature of the function around the cursor as a comment above it.
fn signature(spot: &Spot<'_>, types: &FileTypes) -> Option<CodeAction> {
    let session = &spot.workspace.session;
    let (at, func) = types.func_at(session, spot.offset)?;
    if func.kind != FuncKind::Function || !func.signature.is_empty() {
        return None;
    }
    let comment = comment_of(types, at, func)?;
    let source = session.text(spot.file);
    let text = Text::new(source, spot.encoding);
    let file = &session.files()[spot.file];
    let line = file.position(func.span.start).line - 1;
    // The span begins after the decorators; the comment stands on the line of the `def`.
    let head = text.line(line);
    let indent: String = head.chars().take_while(|c| c.is_whitespace()).collect();
    if !(head.trim_start().starts_with("def ") || head.trim_start().starts_with("async def ")) {
        return None;
    }
    let new_text = format!("{indent}# spmd: {comment}\n");
    let start = Position { line, character: 0 };
    let offset = text.offset(start);
    let changed = format!("{}{new_text}{}", source.get(..offset)?, source.get(offset..)?);
    let parsed = syntax::parse(&changed);
    let read = parsed.ir.funcs.get(at.func).is_some_and(|f| f.name == func.name && f.signature.len() == 1);
    if !read || parsed.problems.len() > syntax::parse(source).problems.len() {
        return None;
    }
    let uri = uri::of(spot.workspace.path(spot.file)?)?;
    let new = TextEdit { range: Range { start, end: start }, new_text };
    Some(CodeAction {
        title: format!("Write the inferred signature of `{}` as a comment", func.name),
        kind: Some(CodeActionKind::REFACTOR_REWRITE),
        edit: Some(edit(vec![(uri, new)])),
        ..CodeAction::default()
    })
}

/// `x: {tp: I} -> {tp: R}`: only where all ways through the function agree, and of known types.
fn comment_of(types: &FileTypes, at: FuncRef, func: &Func) -> Option<String> {
    let exits: Vec<&Exit> = types.exits.iter().filter(|exit| exit.func == at).collect();
    let texts: Vec<Option<String>> = exits.iter().map(|exit| of_exit(exit, func)).collect();
    let first = texts.first()?.clone()?;
    texts.iter().all(|text| text.as_ref() == Some(&first)).then_some(first)
}

fn of_exit(exit: &Exit, func: &Func) -> Option<String> {
    let mut params = Vec::new();
    for param in func.params.iter().filter(|p| p.name != "self" && p.name != "cls") {
        let known = exit.params.iter().find(|(name, _)| *name == param.name).map(|(_, ty)| ty);
        if let Some(ty) = known.filter(|ty| !ty.is_unknown()) {
            params.push(format!("{}: {}", param.name, certain(ty)?));
        }
    }
    let results: Vec<String> = exit
        .results
        .iter()
        .map(|result| match result.as_ref().filter(|ty| !ty.is_unknown()) {
            Some(ty) => certain(ty),
            None => Some("_".to_string()),
        })
        .collect::<Option<_>>()?;
    if params.is_empty() && results.iter().all(|r| r == "_") {
        return None;
    }
    let result = match (exit.is_tuple, results.as_slice()) {
        (false, [one]) => one.clone(),
        _ => format!("({})", results.join(", ")),
    };
    let space = if params.is_empty() { "" } else { " " };
    Some(format!("{}{space}-> {result}", params.join(", ")))
}

/// A type of which each axis that is known is known for certain.
fn certain(ty: &LocalType) -> Option<String> {
    let sure = ty.listed().all(|(axis, s)| s.set.is_unknown() || s.set.is_known() && !axis.is_variable());
    words::notation(ty).filter(|_| sure && (ty.rest.set.is_unknown() || ty.rest.set.is_known()))
}
