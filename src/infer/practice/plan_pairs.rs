//! Plans of styles that do not fit the model that they name, where the model is in another file. In: a dict from paths of modules to styles. Out: a
//! module whose weight is split along the dim that it sums over, and whose result is multiplied with that of one that gives each rank its own part;
//! a norm that the class with the names of the plan has beside one that takes parts of the sequence, and that the plan leaves out. Never: a model
//! that is not found, or found twice, or a norm that anything else names. Next: `style_plan.rs`, norms of heads.

use super::Found;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use super::whole_input::{Entry, plan};
use crate::source::{FileId, Name, Place, Span};

/// Further ways to give modules styles, or to sum gradients of what has none.
const OTHERWISE: &[&str] = &[
    "register_hook",
    "post_accumulate",
    "distribute_module",
    "distribute_tensor",
    "setattr(",
    "requires_grad_(false)",
    ".requires_grad = false",
    "}_norm",
    "isinstance(",
];

/// `"mlp.w1": ColwiseParallel()` beside `"mlp.w3": RowwiseParallel()`, and `self.w1(x) * self.w3(x)`
pub fn products(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let entries = plan(view, step);
        let bare = |e: &&Entry| e.args.is_empty() && e.guards.is_empty();
        for row in entries.iter().filter(|e| e.style == "RowwiseParallel").filter(bare) {
            let Some((parent, leaf)) = row.name.rsplit_once('.') else { continue };
            let columns = entries.iter().filter(|e| e.style == "ColwiseParallel").filter(bare);
            let beside = columns.filter_map(|e| Some((e, e.name.strip_prefix(parent)?.strip_prefix('.')?)));
            let found = beside.filter(|(_, other)| !other.contains('.')).find_map(|(column, other)| {
                let multiplied = multiplied(view, leaf, other)?;
                Some((column, multiplied))
            });
            let Some((column, multiplied)) = found else { continue };
            let (module, other, splits) = (row.name.clone(), column.name.clone(), column.place);
            let mistake = Membership::SplitApart { module, other, splits, multiplied };
            out.push((row.place, Practice::Membership(mistake)));
        }
    }
}

/// Where results of two modules of one object are multiplied with each other, if every line that uses both does so.
fn multiplied(view: &View<'_>, one: &str, other: &str) -> Option<Place> {
    let (first, second) = (format!("self.{one}("), format!("self.{other}("));
    let made = format!("self.{one} = ");
    let (mut found, mut models) = (None, 0);
    for file in view.files.saying(&first) {
        let text = view.files[file].whole();
        // Which of several models the plan is for is not known.
        models += text.matches(&made).count();
        if models > 1 {
            return None;
        }
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let at = start;
            start += line.len();
            if !line.contains(&first) || !line.contains(&second) {
                continue;
            }
            if !is_product(line, &first, &second) && !is_product(line, &second, &first) {
                return None;
            }
            found = found.or_else(|| place(file, at, line));
        }
    }
    found
}

fn place(file: FileId, at: usize, line: &str) -> Option<Place> {
    let lead = line.len() - line.trim_start().len();
    let (start, end) = (u32::try_from(at + lead).ok()?, u32::try_from(at + line.trim_end().len()).ok()?);
    Some(Place { file, span: Span::new(start, end) })
}

/// Whether a line multiplies what is made of one call with another call: `act(self.w1(x)) * self.w3(x)`.
fn is_product(line: &str, left: &str, right: &str) -> bool {
    line.match_indices(right).any(|(at, _)| {
        let Some(before) = line[..at].trim_end().strip_suffix('*').filter(|b| !b.ends_with('*')) else { return false };
        // The operand begins behind the bracket that is still open.
        let mut depth = 0usize;
        let start = before.char_indices().rev().find(|(_, c)| match c {
            ')' | ']' => {
                depth += 1;
                false
            }
            '(' | '[' if depth == 0 => true,
            '(' | '[' => {
                depth -= 1;
                false
            }
            ',' | '=' | '+' => depth == 0,
            _ => false,
        });
        let operand = &before[start.map_or(0, |(at, c)| at + c.len_utf8())..];
        // What goes into another module of the object is no factor itself.
        operand.find(left).is_some_and(|at| !operand[..at].contains("self."))
    })
}

/// `"attention_norm": SequenceParallel()` without `"ffn_norm"`, which the same class has
pub fn norms(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    // One call is for the model as a whole, and is about other modules.
    if code.matches("parallelize_module(").count() > 2 || near::has_any(code, OTHERWISE) {
        return;
    }
    for step in 0..view.steps.len() {
        let entries = plan(view, step);
        let own: Vec<&Entry> = entries.iter().filter(|e| !e.name.contains('.')).collect();
        let is_norm = |e: &&&Entry| e.style == "SequenceParallel" && e.name.contains("norm") && e.guards.is_empty();
        let Some(sister) = own.iter().find(is_norm) else { continue };
        // Both blocks take parts of the sequence, and leave parts.
        let blocks: Vec<&&Entry> = own
            .iter()
            .filter(|e| e.style == "PrepareModuleInput" && e.says("input_layouts", "Shard") && e.guards.is_empty())
            .collect();
        if blocks.len() < 2 || by_class(view) {
            continue;
        }
        let Some((norm, made)) = left_out(view, &own, &blocks) else { continue };
        let mistake = Membership::NormLeftOut { module: norm, sister: sister.name.clone(), made };
        out.push((sister.place, Practice::Membership(mistake)));
    }
}

/// The norm with a weight that the only class with all names of a plan has besides, and where it is made.
fn left_out(view: &View<'_>, own: &[&Entry], blocks: &[&&Entry]) -> Option<(Name, Place)> {
    let first = format!("self.{} =", own.first()?.name);
    let mut found: Vec<(usize, Name, Place)> = Vec::new();
    for file in view.files.saying(&first) {
        let text = view.files[file].whole();
        for (at, _) in text.match_indices(&first) {
            let class = class_around(text, at)?;
            let body = &text[class.0..class.1];
            if !own.iter().all(|e| body.contains(&format!("self.{} =", e.name))) {
                continue;
            }
            let (norm, line) = other_norm(body, own)?;
            // What it gives is taken for parts of the sequence by one of the blocks.
            let given = format!("(self.{norm}(");
            let goes_in = |line: &str| {
                line.match_indices(&given)
                    .any(|(at, _)| blocks.iter().any(|b| line[..at].ends_with(&format!("self.{}", b.name))))
            };
            if !body.lines().any(goes_in) {
                continue;
            }
            let made = place(file, class.0 + line, body[line..].lines().next()?)?;
            found.push((shared_folders(view, file), norm, made));
        }
    }
    // Another model with these names is the one of another plan, if it lies further away.
    let nearest = found.iter().map(|(near, ..)| *near).max()?;
    let mut near = found.into_iter().filter(|(shared, ..)| *shared == nearest);
    let (one, None) = (near.next()?, near.next()) else { return None };
    Some((one.1, one.2)).filter(|(norm, made)| !is_named_elsewhere(view, norm, made.file))
}

/// Whether some file of the project finds norms, or plain parameters, by their class, as what splits them or sums their gradients does.
fn by_class(view: &View<'_>) -> bool {
    let by = ["Norm)", "Norm))", "DTensor)", "norm\" in", "norm' in"];
    view.files.any_says("isinstance(") && by[..3].iter().any(|w| view.files.any_says(w))
        || by[3..].iter().any(|w| view.files.any_says(w))
}

/// How many folders a file has in common with that of the plan.
fn shared_folders(view: &View<'_>, file: FileId) -> usize {
    let own = view.files[view.project.file(view.at.module)].path.split('/');
    own.zip(view.files[file].path.split('/')).take_while(|(a, b)| a == b).count()
}

/// The text of the class around a place: from its head to the next line that is not indented.
fn class_around(text: &str, at: usize) -> Option<(usize, usize)> {
    let start = text[..at].rfind("\nclass ")? + 1;
    let mut end = start + text[start..].find('\n')?;
    for line in text[end..].split_inclusive('\n') {
        let out = !line.trim().is_empty() && !line.starts_with([' ', '\t', ')', '\n']);
        if out && end > start + 1 {
            break;
        }
        end += line.len();
    }
    (end > at).then_some((start, end))
}

/// A norm of a class that a plan does not name, and the line that makes it; none if there are several.
fn other_norm(class: &str, own: &[&Entry]) -> Option<(Name, usize)> {
    let mut found = None;
    let mut start = 0;
    for line in class.split_inclusive('\n') {
        let at = start;
        start += line.len();
        let Some((name, value)) = line.trim().strip_prefix("self.").and_then(|rest| rest.split_once('=')) else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        let made = value.split('(').next().unwrap_or_default();
        let weighted =
            (made.ends_with("RMSNorm") || made.ends_with("LayerNorm")) && !value.contains("elementwise_affine");
        let is_name = name.contains("norm") && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if !weighted || !is_name || own.iter().any(|e| e.name == name) {
            continue;
        }
        if found.replace((Name::from(name), at)).is_some() {
            return None;
        }
    }
    found
}

/// Whether any file but that of the class names a norm, as another plan or a reduction of its gradient may.
fn is_named_elsewhere(view: &View<'_>, norm: &str, home: FileId) -> bool {
    let own = view.file().contains(norm);
    let quoted = [format!("{norm}\""), format!("{norm}'"), format!("\"{norm}"), format!(".{norm}.weight")];
    own && view.files[home].whole() != view.file()
        || near::has_any(view.file(), &quoted)
        || near::has_any(view.files[home].whole(), &quoted[..2])
}
