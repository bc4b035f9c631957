//! Edits for mistakes of practice: a wait that is missing, a result that is lost, an argument that is left out. In: a finding and the text
//! around its places. Out: the edits, and whether they are certain. Never: an edit that guesses a name. Next: `text.rs`.

use super::text::{
    call, closing, delete_lines, edit, function_before, has_word, import, indent_of, is_dotted, is_name,
    leading_expression, line_range, newline, whole_line, words_at,
};
use super::{Edits, Planned};
use crate::infer::practice::found::{Placements, Practice, Scales, Until};
use crate::source::{Edit, File, Files, Place};

/// What is to be done about a mistake of practice; nothing where that takes a decision.
pub fn practice(files: &Files, place: Place, mistake: &Practice) -> Option<Planned> {
    let at = At::new(files, place)?;
    match mistake {
        Practice::LostCopy { method, original, .. } => at.keep_copy(method, *original).map(Planned::certain),
        Practice::UnusedResult { .. } => at.keep_result().map(Planned::certain),
        Practice::ReadInFlight { until: Until::End { .. }, .. } => at.wait().map(Planned::certain),
        Practice::InvertedGuard { variable, .. } => at.invert(variable).map(Planned::certain),
        Practice::Placements(found) => at.placements(found),
        Practice::Scales(found) => at.scales(files, found),
        _ => None,
    }
}

/// `mark_sharding(h, mesh, spec)` as an assignment of the function that annotates the gradient as well.
pub fn forward_only(files: &Files, place: Place, differentiable: &str) -> Option<Planned> {
    let at = At::new(files, place)?;
    let (_, _, assigned) = whole_line(at.file, place)?;
    let found = call(at.shown)?;
    let (_, first) = *found.arguments.first()?;
    if assigned.is_some() || !is_name(first) {
        return None;
    }
    let start = at.start;
    let text = format!("{first} = {differentiable}.apply");
    Some(Planned::certain(vec![edit(place.file, start, start + found.callee.len(), text)]))
}

/// `return a, None` with further `None`s; certain where the list ends in them already.
pub fn gradient_count(files: &Files, place: Place, returned: usize, expected: usize) -> Option<Planned> {
    let at = At::new(files, place)?;
    let missing = expected.checked_sub(returned).filter(|n| *n > 0)?;
    let value = at.shown.strip_prefix("return ")?.trim_end();
    if value.contains(['\n', '#']) {
        return None;
    }
    let whole = value.starts_with('(') && closing(value) == Some(value.len() - 1);
    let end = at.start + at.shown.trim_end().len() - usize::from(whole);
    let more = ", None".repeat(missing);
    let trailing = value.trim_end_matches(')').trim_end_matches(',').trim_end().ends_with("None");
    let edits = vec![edit(place.file, end, end, more)];
    Some(if trailing { Planned::certain(edits) } else { Planned::likely(edits) })
}

/// A place and the text there.
struct At<'a> {
    file: &'a File,
    place: Place,
    shown: &'a str,
    start: usize,
}

impl<'a> At<'a> {
    fn new(files: &'a Files, place: Place) -> Option<At<'a>> {
        let file = &files[place.file];
        let shown = file.slice(place.span);
        (!shown.is_empty()).then_some(At { file, place, shown, start: place.span.start as usize })
    }

    fn edit(&self, start: usize, end: usize, text: impl Into<String>) -> Edit {
        edit(self.place.file, start, end, text)
    }

    /// A new line before or after the statement, as deep as it.
    fn line_before(&self, text: &str) -> Edit {
        let (from, to) = line_range(&self.file.text, self.start);
        let indent = indent_of(self.file.text.get(from..to).unwrap_or(""));
        self.edit(from, from, format!("{indent}{text}{}", newline(&self.file.text)))
    }

    /// `f(x.contiguous())` becomes `x = x.contiguous()` and `f(x)`.
    fn keep_copy(&self, method: &str, original: Place) -> Option<Edits> {
        let name = self.file.slice(original.span);
        whole_line(self.file, self.place)?;
        let found = call(self.shown)?;
        let head = format!("{name}.{method}(");
        let (offset, argument) = *found.arguments.iter().find(|(_, a)| a.starts_with(&head))?;
        let is_call = call(argument).is_some();
        if !is_dotted(name) || !is_call || original.file != self.place.file {
            return None;
        }
        let start = self.start + offset;
        Some(vec![self.line_before(&format!("{name} = {argument}")), self.edit(start, start + argument.len(), name)])
    }

    /// `f(x)` on a line of its own becomes `x = f(x)`.
    fn keep_result(&self) -> Option<Edits> {
        let (_, _, assigned) = whole_line(self.file, self.place)?;
        let found = call(self.shown)?;
        let (_, first) = *found.arguments.first()?;
        (assigned.is_none() && is_dotted(first)).then(|| vec![self.edit(self.start, self.start, format!("{first} = "))])
    }

    /// A collective whose handle nothing waits for.
    fn wait(&self) -> Option<Edits> {
        let (_, to, assigned) = whole_line(self.file, self.place)?;
        let found = call(self.shown)?;
        if let Some(handle) = assigned {
            let (from, end) = line_range(&self.file.text, self.start);
            let indent = indent_of(self.file.text.get(from..end).unwrap_or(""));
            return Some(vec![self.edit(to, to, format!("{}{indent}{handle}.wait()", newline(&self.file.text)))]);
        }
        let at = found.arguments.iter().position(|(_, a)| a.replace(' ', "") == "async_op=True")?;
        let (_, before) = found.arguments.get(at.checked_sub(1)?)?;
        let (offset, argument) = found.arguments[at];
        let previous = found.arguments[at - 1].0 + before.len();
        // What lies between may hold a comment; then the argument alone changes.
        let between = self.shown.get(previous..offset)?;
        Some(match between.contains('#') {
            true => vec![self.edit(self.start + offset, self.start + offset + argument.len(), "async_op=False")],
            false => vec![self.edit(self.start + previous, self.start + offset + argument.len(), "")],
        })
    }

    /// A condition on a variable, the other way round.
    fn invert(&self, variable: &str) -> Option<Edits> {
        let text = self.shown.trim();
        let inverted = if text == format!("{variable} is not None") || text == variable {
            format!("{variable} is None")
        } else if text == format!("{variable} is None") || text == format!("not {variable}") {
            format!("{variable} is not None")
        } else {
            return None;
        };
        Some(vec![self.edit(self.start, self.start + self.shown.len(), inverted)])
    }

    fn placements(&self, found: &Placements) -> Option<Planned> {
        match found {
            Placements::BareLocal { method, .. } | Placements::PartOut { method, .. } => {
                self.gradient_placements(method)
            }
            Placements::RegionGradient { conditional: true } => self.one_branch().map(Planned::certain),
            Placements::StyleGradient { parameter, .. } => self.partial_argument(parameter),
            Placements::StyleInput { .. } => self.partial_argument("grad_placements"),
            Placements::ShardDim { dim, sequence, .. } => self.other_number(*dim, *sequence).map(Planned::certain),
            Placements::RegionGradient { conditional: false }
            | Placements::CompleteGradient { .. }
            | Placements::Count { .. }
            | Placements::OnOtherMesh { .. }
            | Placements::LocalHead { .. }
            | Placements::NormKept { .. }
            | Placements::CutLocal { .. }
            | Placements::PackedCut { .. }
            | Placements::ViewsApart { .. }
            | Placements::WideBuffer { .. }
            | Placements::NarrowBuffer { .. }
            | Placements::OwnRows { .. }
            | Placements::LabelledAs { .. } => None,
        }
    }

    /// A call with one more argument, which says that a gradient is partial.
    fn partial_argument(&self, parameter: &str) -> Option<Planned> {
        let mut edits = vec![self.argument(&format!("{parameter}=(Partial(),)"))?];
        edits.extend(self.bound("Partial")?);
        Some(Planned::certain(edits))
    }

    /// `w.to_local()` with the placements of the gradient, whatever those of the weight are.
    fn gradient_placements(&self, method: &str) -> Option<Planned> {
        let found = call(self.shown).filter(|f| f.arguments.is_empty())?;
        let weight = found.callee.strip_suffix(method)?.strip_suffix('.')?;
        let mut edits = Vec::new();
        if method == "full_tensor" {
            let text = format!("grad_placements=[Partial()] * {weight}.device_mesh.ndim");
            edits.push(self.argument(&text)?);
            edits.extend(self.bound("Partial")?);
            return Some(Planned::likely(edits));
        }
        let text =
            format!("grad_placements=[Partial() if isinstance(p, Replicate) else p for p in {weight}.placements]");
        edits.push(self.argument(&text)?);
        edits.extend(self.bound("Partial")?);
        edits.extend(self.bound("Replicate")?);
        Some(Planned::certain(edits))
    }

    /// `a if c else None` becomes `a`.
    fn one_branch(&self) -> Option<Edits> {
        let text = self.shown.trim();
        let (value, rest) = text.split_once(" if ")?;
        let (_, other) = rest.rsplit_once(" else ")?;
        let kept = match (value.trim(), other.trim()) {
            (kept, "None") if kept != "None" => kept,
            ("None", kept) => kept,
            _ => return None,
        };
        Some(vec![self.edit(self.start, self.start + self.shown.len(), kept)])
    }

    /// The one number of the text that is a dim.
    fn other_number(&self, dim: usize, other: usize) -> Option<Edits> {
        let digits = dim.to_string();
        let mut at = words_at(self.shown, &digits).filter(|i| !self.shown[..*i].ends_with(['.', '-']));
        let (one, more) = (at.next()?, at.next());
        let start = self.start + one;
        more.is_none().then(|| vec![self.edit(start, start + digits.len(), other.to_string())])
    }

    /// A further argument of the call, after the last one.
    fn argument(&self, text: &str) -> Option<Edit> {
        let found = call(self.shown)?;
        Some(match found.arguments.last() {
            Some((offset, last)) => {
                let end = self.start + offset + last.len();
                self.edit(end, end, format!(", {text}"))
            }
            None => self.edit(self.start + found.close, self.start + found.close, text),
        })
    }

    /// What makes a name of the distributed tensors bound: nothing, or an import beside those of its kin.
    fn bound(&self, name: &str) -> Option<Option<Edit>> {
        if has_word(&self.file.text, name) {
            return Some(None);
        }
        let modules =
            ["torch.distributed.tensor", "torch.distributed._tensor", "torch.distributed.tensor.placement_types"];
        modules.iter().find_map(|m| import(self.place.file, &self.file.text, m, name)).map(Some)
    }

    fn scales(&self, files: &Files, found: &Scales) -> Option<Planned> {
        match found {
            Scales::GroupLeftOut { own, .. } => {
                self.argument(&format!("group={own}")).map(|e| Planned::certain(vec![e]))
            }
            Scales::GlobalRank { unread, given } => self.own_rank(files, unread, *given).map(Planned::certain),
            Scales::OtherSize { .. } => self.size_of_group().map(Planned::certain),
            Scales::MeanTwice { .. } | Scales::CountedAgain { .. } => self.over_world_size().map(Planned::likely),
            _ => None,
        }
    }

    /// `1.0 / n` or `dp_size / n` with the size of the world, where the function has it.
    fn over_world_size(&self) -> Option<Edits> {
        let (numerator, _) = self.shown.split_once('/')?;
        let numerator = numerator.trim_end();
        let (_, function) = function_before(&self.file.text, self.start);
        let plain = is_name(numerator) || numerator.parse::<f64>().is_ok_and(|n| n == 1.0);
        let known = has_word(function, "world_size") && plain && numerator != "world_size";
        known.then(|| vec![self.edit(self.start, self.start + numerator.len(), "world_size")])
    }

    /// The rank on the mesh dim or in the group that the function is given.
    fn own_rank(&self, files: &Files, unread: &str, given: Place) -> Option<Edits> {
        let found = call(self.shown).filter(|f| f.arguments.is_empty())?;
        let end = self.start + self.shown.len();
        let parameter = files[given.file].slice(given.span);
        if unread.contains("group") || parameter.contains("ProcessGroup") {
            return Some(vec![self.edit(self.start + found.close, self.start + found.close, unread)]);
        }
        let (_, function) = function_before(&self.file.text, self.start);
        let open = function.find('(')?;
        let parameters = &function[open + 1..open + closing(&function[open..])?];
        let is_mesh =
            |p: &&str| p.contains("DeviceMesh") || p.split(':').next().is_some_and(|n| n.trim().ends_with("mesh"));
        let mut meshes =
            parameters.split(',').filter(is_mesh).filter_map(|p| p.split([':', '=']).next()).map(str::trim);
        let (mesh, more) = (meshes.next().filter(|m| is_name(m) && *m != unread)?, meshes.next());
        more.is_none().then(|| vec![self.edit(self.start, end, format!("{mesh}.get_local_rank({unread})"))])
    }

    /// A size asked for as the group of its kind is asked for in the same file.
    fn size_of_group(&self) -> Option<Edits> {
        let found = call(self.shown).filter(|f| f.arguments.is_empty())?;
        let group = format!("{}_group", found.callee.rsplit('.').next()?.strip_suffix("_world_size")?);
        let text = &self.file.text;
        let mut arguments: Vec<&str> = words_at(text, &group)
            .filter_map(|at| {
                let rest = text.get(at + group.len()..)?.strip_prefix('(')?;
                let first = leading_expression(rest);
                rest[first.len()..].starts_with(')').then_some(first)
            })
            .filter(|a| !a.is_empty())
            .collect();
        arguments.sort_unstable();
        arguments.dedup();
        match arguments.as_slice() {
            [one] => Some(vec![self.edit(self.start + found.close, self.start + found.close, *one)]),
            _ => None,
        }
    }
}

/// The comment of a suppression that suppresses nothing: with its line, if it stands alone.
pub fn without_comment(files: &Files, place: Place) -> Vec<Edit> {
    let text = &files[place.file].text;
    let (start, end) = (place.span.start as usize, place.span.end as usize);
    let (from, to) = line_range(text, start);
    let before = text.get(from..start).unwrap_or("");
    let alone = before.trim().is_empty() && text.get(end..to).is_some_and(|rest| rest.trim().is_empty());
    match alone {
        true => vec![delete_lines(place.file, text, from, to)],
        false => vec![edit(place.file, from + before.trim_end().len(), end, "")],
    }
}
