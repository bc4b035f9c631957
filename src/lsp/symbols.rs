//! The outline of a file. In: its definitions and signatures. Out: symbols, nested, each function with its inferred signature. Never:
//! lambdas or module bodies. Next: `types.rs`.

use super::text::{Encoding, Text};
use super::types::FileTypes;
use super::uri;
use super::workspace::Workspace;
use crate::ir::{Func, FuncId, FuncKind};
use crate::source::{FileId, Idx, Span};
use lsp_types::{DocumentSymbol, Location, SymbolInformation, SymbolKind, Uri};

/// The outline as a tree.
pub fn nested(workspace: &Workspace, file: FileId, types: &FileTypes, encoding: Encoding) -> Vec<DocumentSymbol> {
    let Some(module) = workspace.session.module_of(file) else { return Vec::new() };
    let text = Text::new(workspace.session.text(file), encoding);
    let outline = Outline { workspace, file, types, text, ir: &workspace.session.project().modules[module].ir };
    outline.below(FuncId::from_index(0))
}

/// The outline as a list, for clients that know no trees.
pub fn flat(workspace: &Workspace, file: FileId, tree: Vec<DocumentSymbol>) -> Vec<SymbolInformation> {
    let mut out = Vec::new();
    let uri = workspace.path(file).and_then(uri::of);
    if let Some(uri) = uri {
        tree.into_iter().for_each(|symbol| flatten(symbol, None, &uri, &mut out));
    }
    out
}

#[allow(deprecated)]
fn flatten(symbol: DocumentSymbol, container: Option<&str>, uri: &Uri, out: &mut Vec<SymbolInformation>) {
    let inner = symbol.children.unwrap_or_default();
    out.push(SymbolInformation {
        name: symbol.name.clone(),
        kind: symbol.kind,
        tags: None,
        deprecated: None,
        location: Location { uri: uri.clone(), range: symbol.range },
        container_name: container.map(str::to_string),
    });
    inner.into_iter().for_each(|child| flatten(child, Some(&symbol.name), uri, out));
}

struct Outline<'a> {
    workspace: &'a Workspace,
    file: FileId,
    types: &'a FileTypes,
    text: Text<'a>,
    ir: &'a crate::ir::FileIr,
}

impl Outline<'_> {
    fn below(&self, parent: FuncId) -> Vec<DocumentSymbol> {
        let own = self.ir.funcs.iter_enumerated().filter(|(id, f)| f.parent == Some(parent) && *id != parent);
        own.filter(|(_, f)| matches!(f.kind, FuncKind::Function | FuncKind::ClassBody))
            .map(|(id, f)| self.symbol(id, f))
            .collect()
    }

    #[allow(deprecated)]
    fn symbol(&self, id: FuncId, f: &Func) -> DocumentSymbol {
        let source = &self.workspace.session.files()[self.file];
        let range = |span: Span| self.text.range(source, span);
        let kind = match (f.kind, f.class) {
            (FuncKind::ClassBody, _) => SymbolKind::CLASS,
            (_, Some(_)) if f.name == "__init__" => SymbolKind::CONSTRUCTOR,
            (_, Some(_)) => SymbolKind::METHOD,
            _ => SymbolKind::FUNCTION,
        };
        let line = source.position(f.name_span.start).line;
        let qualname = self.ir.qualname(id);
        let detail = match f.kind {
            FuncKind::ClassBody => None,
            _ => Some(self.types.signature(&qualname, line).join("; ")).filter(|text| !text.is_empty()),
        };
        let children = self.below(id);
        DocumentSymbol {
            name: f.name.to_string(),
            // What stands before the parameters is the name again.
            detail: detail.map(|text| text.strip_prefix(qualname.as_str()).unwrap_or(&text).to_string()),
            kind,
            tags: None,
            deprecated: None,
            range: range(f.span.cover(f.name_span)),
            selection_range: range(f.name_span),
            children: (!children.is_empty()).then_some(children),
        }
    }
}
