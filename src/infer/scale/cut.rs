//! Parts of ranks: batches that are cut by the rank, and gradients of which a wrapper leaves each rank a part. In: an element by the own rank of
//! what was cut for all ranks; a reduction. Out: whether tokens of the whole and of the own part may be told apart afterwards (a count may
//! then be of either); a sum of different parts. Never: which of both a count is. Next: `eval.rs`, `verdict.rs`.

use super::Run;
use super::eval::TOKENS;
use super::value::{ClassId, State, Val};
use crate::infer::practice::found::{Practice, Scales};
use crate::ir::{Arg, ArgKind, StmtId};
use crate::source::{Name, Place, Span};
use crate::types::{AxisSet, Factor, Scale};

/// Words of code in which parameters or gradients may be whole for a while.
const WHOLE: &[&str] = &[
    "no_sync",
    "requires_gradient_sync",
    "summon_full_params",
    "unshard",
    "reshard_after_backward",
    "ignored_params",
    "ignored_states",
];

/// What cuts a tensor into one part for each rank.
const CUTS: &[&str] = &[".chunk(", ".tensor_split(", ".split(", "[:", "[..."];

/// What stands beside what is counted.
const COUNTS: &[&str] = &["!=", "==", ".ne(", ".eq(", "sum", "numel", "count", "mask", "len", ">", "token"];

impl Run<'_> {
    /// Whether the whole of what is cut here has a name still, or was counted before.
    pub fn keeps_whole(&self, id: StmtId, state: &State) -> bool {
        let place = self.place(state, id);
        let file = &self.files[place.file];
        let before = file.whole().get(..place.span.start as usize).unwrap_or("");
        let line = before.rsplit('\n').next().unwrap_or("");
        let root = file.slice(place.span).split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let rebound = line.split_once(" = ").is_some_and(|(names, _)| names.split(',').any(|name| name.trim() == root));
        !(rebound || self.is_last_of_whole(place, state)) || state.has_counted()
    }

    /// Whether nothing names what is cut in a function after it is cut: `labels = batch["labels"].chunk(n, dim=1)[rank]`.
    fn is_last_of_whole(&self, place: Place, state: &State) -> bool {
        let text = self.files[place.file].whole();
        let cut = self.files[place.file].slice(place.span);
        let Some((at, args)) = CUTS.iter().find_map(|word| cut.split_once(word)) else { return false };
        // `torch.chunk(x, n)` or `x.chunk(n)`.
        let whole = if at == "torch" { args.split(',').next().unwrap_or_default() } else { at };
        let Some(frame) = state.frames.last() else { return false };
        let func = self.project.func(frame.at);
        // Also what a caller cuts by a helper: `labels = shard(batch["labels"], group)`.
        if func.params.iter().any(|p| p.name == whole) {
            return self.is_last_of_call(state);
        }
        is_named_once(text, whole, (func.span, place.span))
    }

    /// Whether the caller names nothing that it gives to the innermost function later on, but for groups and sizes.
    fn is_last_of_call(&self, state: &State) -> bool {
        let [.., caller, frame] = &state.frames[..] else { return false };
        let Some(call) = frame.call else { return false };
        let text = self.files[call.file].slice(call.span);
        let Some((_, args)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) else { return false };
        let (file, around) = (self.files[call.file].whole(), self.project.func(caller.at).span);
        let is_tensor = |arg: &&str| !["group", "size", "rank", "mesh", "dim"].iter().any(|word| arg.contains(word));
        let wholes: Vec<&str> = args.split(',').map(str::trim).filter(is_tensor).collect();
        let plain = |whole: &str| whole.chars().all(|c| c.is_alphanumeric() || "_.[]\"'".contains(c));
        wholes.iter().any(|whole| plain(whole))
            && wholes.iter().all(|whole| is_named_once(file, whole, (around, call.span)))
    }

    /// A reduction of gradients over the very ranks among which a wrapper has split them: it adds up those of different parameters.
    pub fn parts_reduced(&mut self, place: Place, class: ClassId, axes: &AxisSet, state: &mut State) {
        let module = state.classes.get(class).and_then(|c| c.module);
        let Some(keeps) = module.and_then(|m| state.keeps_of(m)) else { return };
        let split: Vec<Name> = axes.iter().filter(|a| keeps.shards.contains(a)).map(|a| Name::from(a.name())).collect();
        let text = self.files[place.file].whole();
        if split.is_empty() || !keeps.distributed || WHOLE.iter().any(|word| text.contains(word)) {
            return;
        }
        if let Some(c) = state.classes.get_mut(class) {
            c.after = Scale::Unknown;
        }
        let mistake = Scales::PartSummed { axes: split, part: keeps.place, sum: None };
        self.noted.push((place, Practice::Scales(mistake)));
    }
}

/// Whether nothing in a function names what is cut there after it is cut, and nothing may count it before.
fn is_named_once(text: &str, whole: &str, (function, cut): (Span, Span)) -> bool {
    let part = |start: u32, end: u32| text.get(start as usize..end as usize).unwrap_or(whole);
    let counts = |line: &str| COUNTS.iter().any(|word| line.contains(word));
    !whole.is_empty()
        && !part(cut.end, function.end).contains(whole)
        && !part(function.start, cut.start).lines().any(|line| line.contains(whole) && counts(line))
}

/// Whether a call is given tensors and, for each, the dim of the sequence along which it cuts them in place:
/// `context_parallel(mesh, buffers=.., buffer_seq_dims=..)` and what wraps it. Source: torch 2.9, torch.distributed.tensor.experimental.
pub fn cuts_in_place(args: &[Arg]) -> bool {
    let given = |end: &str| args.iter().any(|arg| matches!(&arg.kind, ArgKind::Keyword(name) if name.ends_with(end)));
    given("buffers") && given("seq_dims")
}

impl State {
    /// Tensors in hand are parts of ranks from here on: what was counted of them before was counted of the whole.
    pub fn cut_in_place(&mut self) {
        self.cut_after |= !self.counted.is_empty();
        self.unsettled |= self.has_counted();
    }

    /// Whether a number is one of tokens.
    fn has_counted(&self) -> bool {
        let tokens = Factor::Count(Name::from(TOKENS));
        let counts = |v: &Val| matches!(v, Val::Num(n) if n.scale.known().is_some_and(|m| m.power(&tokens) > 0));
        let locals = self.frames.iter().flat_map(|f| f.locals.numbered());
        locals.chain(self.objects.iter().flat_map(|o| o.attrs.numbered())).any(counts)
    }
}
