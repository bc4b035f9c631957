//! The thread that checks. In: notifications and requests in order. Out: diagnostics after each change, answers. Never: the life cycle of the
//! connection, which `server.rs` keeps while this thread is busy. Next: `workspace.rs`, `answers.rs`.

use super::answers::{self, Answer};
use super::capabilities::Client;
use super::events::options;
use super::outbox::{Outbox, Refusal};
use super::workspace::{Options, Workspace};
use super::{publish, uri};
use crate::source::FileId;
use lsp_server::{ErrorCode, Notification, Request};
use lsp_types::{InitializeParams, PublishDiagnosticsParams, Uri};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// Something to do.
pub enum Job {
    Request(Request),
    Notification(Notification),
}

/// How long to wait for another change, as a part of the time until something is shown, and the longest wait.
const WAIT_PART: u32 = 10;
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// An open document.
pub struct Open {
    pub uri: Uri,
    pub version: i32,
}

/// All workspaces and open documents.
pub struct Documents {
    pub folders: Vec<PathBuf>,
    pub workspaces: Vec<Workspace>,
    pub open: BTreeMap<PathBuf, Open>,
    pub texts: BTreeMap<PathBuf, String>,
    pub options: Options,
    pub stop: Arc<AtomicBool>,
}

impl Documents {
    pub fn options_hints(&self) -> bool {
        self.options.hints
    }

    /// The workspace of a file: the innermost folder that holds it.
    pub fn find(&mut self, path: &Path) -> Option<(&mut Workspace, FileId)> {
        let inside = self.workspaces.iter_mut().filter_map(|w| w.file(path).map(|file| (w, file)));
        inside.max_by_key(|(w, _)| path.starts_with(&w.root).then(|| w.root.as_os_str().len()))
    }
}

/// The state of the thread.
pub struct Worker {
    pub(super) client: Client,
    pub(super) outbox: Arc<Outbox>,
    pub(super) documents: Documents,
    pub(super) pool: Option<rayon::ThreadPool>,
    waiting: VecDeque<Request>,
    /// Documents that changed since the last diagnostics.
    pub(super) touched: BTreeSet<PathBuf>,
    published: BTreeMap<Uri, Vec<lsp_types::Diagnostic>>,
    /// Versions of which a first look was published.
    glanced: BTreeMap<Uri, i32>,
    /// How long it took until something was shown of a change.
    took: Duration,
    pub(super) loaded: bool,
    /// Whether something was loaded that nobody was told of.
    pub(super) untold: bool,
    /// Mistakes in configurations.
    pub(super) misconfigured: BTreeMap<Uri, Vec<lsp_types::Diagnostic>>,
}

impl Worker {
    pub fn new(client: Client, params: &InitializeParams, outbox: Arc<Outbox>, stop: Arc<AtomicBool>) -> Worker {
        let pool = rayon::ThreadPoolBuilder::new().stack_size(64 << 20).build().ok();
        let documents = Documents {
            folders: folders(params),
            workspaces: Vec::new(),
            open: BTreeMap::new(),
            texts: BTreeMap::new(),
            options: params.initialization_options.as_ref().map_or_else(Options::default, options),
            stop,
        };
        let (waiting, touched, published) = (VecDeque::new(), BTreeSet::new(), BTreeMap::new());
        let (glanced, took, misconfigured) = (BTreeMap::new(), Duration::ZERO, BTreeMap::new());
        let (loaded, untold) = (false, false);
        Worker {
            client,
            outbox,
            documents,
            pool,
            waiting,
            touched,
            published,
            glanced,
            took,
            loaded,
            untold,
            misconfigured,
        }
    }

    /// Works until the other side is gone.
    pub fn run(mut self, jobs: &Receiver<Job>) {
        self.load();
        loop {
            let idle = !self.is_dirty() && self.waiting.is_empty();
            if idle && !self.prepare(jobs) {
                match jobs.recv() {
                    Ok(job) => self.take(job),
                    Err(_) => return,
                }
            }
            if self.drain(jobs) {
                return;
            }
            self.documents.stop.store(false, Ordering::Relaxed);
            // A change that came in before the flag was cleared is taken now; a later one sets it again.
            if self.drain(jobs) {
                return;
            }
            if self.is_dirty() {
                self.check();
            }
            self.answer();
        }
    }

    /// Takes what has come in, and what comes in shortly after a change; whether the other side is gone.
    fn drain(&mut self, jobs: &Receiver<Job>) -> bool {
        let wait = (self.took / WAIT_PART).min(LONGEST_WAIT);
        let until = Instant::now() + wait;
        loop {
            match jobs.try_recv() {
                Ok(job) => self.take(job),
                Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if self.touched.is_empty() || !self.waiting.is_empty() || left.is_zero() {
                        return false;
                    }
                    match jobs.recv_timeout(left) {
                        Ok(job) => self.take(job),
                        Err(RecvTimeoutError::Timeout) => return false,
                        Err(RecvTimeoutError::Disconnected) => return true,
                    }
                }
            }
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Request(request) if answers::is_offered(&request.method) => self.waiting.push_back(request),
            Job::Request(request) => self.outbox.answer(&request.id, Err(super::server::unknown(&request.method))),
            Job::Notification(note) => {
                let method = note.method.clone();
                if catch_unwind(AssertUnwindSafe(|| self.notification(note))).is_err() {
                    self.outbox.log(&format!("spmd-check failed on `{method}`; it loads everything again"));
                    self.load();
                }
            }
        }
    }

    fn is_dirty(&self) -> bool {
        self.documents.workspaces.iter().any(|w| w.dirty) || !self.touched.is_empty() || self.untold
    }

    /// Checks what changed and publishes what is found.
    pub fn check(&mut self) {
        let started = Instant::now();
        let glanced = self.glance().then(|| started.elapsed());
        // Something is shown by then, be the check stopped.
        self.took = glanced.unwrap_or(self.took);
        let pool = self.pool.as_ref();
        for workspace in self.documents.workspaces.iter_mut().filter(|w| w.dirty) {
            match catch_unwind(AssertUnwindSafe(|| inside(pool, || workspace.check()))) {
                Ok(true) => {}
                // Stopped by a change that is on its way.
                Ok(false) => return,
                Err(_) => {
                    workspace.dirty = false;
                    self.outbox.log("spmd-check failed; this is a bug in it, not in the program");
                }
            }
        }
        // After a load come edits, which take less.
        let own = || if self.untold { Duration::ZERO } else { started.elapsed() };
        self.took = glanced.unwrap_or_else(own);
        self.publish_all();
        if self.client.refreshes_hints && self.touched.len() > 1 {
            self.outbox.ask("workspace/inlayHint/refresh", Value::Null);
        }
        self.touched.clear();
        self.untold = false;
        self.glanced.clear();
    }

    /// Publishes what a first look at the edited documents shows, where a check takes long; whether that was so.
    fn glance(&mut self) -> bool {
        let (pool, encoding, related) = (self.pool.as_ref(), self.client.encoding, self.client.related);
        let mut shown = Vec::new();
        for workspace in self.documents.workspaces.iter_mut().filter(|w| w.dirty) {
            let files: Vec<FileId> = self.touched.iter().filter_map(|path| workspace.file(path)).collect();
            let work = || inside(pool, || workspace.glance(&files));
            if !matches!(catch_unwind(AssertUnwindSafe(work)), Ok(true)) {
                continue;
            }
            for path in &self.touched {
                if let (Some(file), Some(open)) = (workspace.file(path), self.documents.open.get(path)) {
                    let list = publish::of_file(workspace, file, encoding, related);
                    shown.push((open.uri.clone(), open.version, list));
                }
            }
        }
        let any = !shown.is_empty();
        for (uri, version, list) in shown {
            self.glanced.insert(uri.clone(), version);
            self.publish(uri, Some(version), list, true);
        }
        any
    }

    fn publish_all(&mut self) {
        let (encoding, related) = (self.client.encoding, self.client.related);
        let mut all = self.misconfigured.clone();
        for workspace in &self.documents.workspaces {
            let files: BTreeSet<FileId> = workspace.found.iter().map(|found| found.place.file).collect();
            for file in files {
                // A file of two folders is told of once, by the innermost.
                let Some(path) = workspace.path(file) else { continue };
                let inner = self.documents.workspaces.iter().any(|other| {
                    other.root.starts_with(&workspace.root)
                        && other.root != workspace.root
                        && other.file(path).is_some()
                });
                let uri = self.documents.open.get(path).map(|open| open.uri.clone()).or_else(|| uri::of(path));
                if let (Some(uri), false) = (uri, inner) {
                    all.entry(uri).or_default().extend(publish::of_file(workspace, file, encoding, related));
                }
            }
        }
        let touched: Vec<(Uri, i32)> = self
            .touched
            .iter()
            .filter_map(|path| self.documents.open.get(path))
            .map(|open| (open.uri.clone(), open.version))
            .collect();
        // What is being edited first.
        for (uri, version) in &touched {
            let list = all.get(uri).cloned().unwrap_or_default();
            let told = self.glanced.get(uri) == Some(version);
            self.publish(uri.clone(), Some(*version), list, !told);
        }
        let before: Vec<Uri> = self.published.keys().cloned().collect();
        for uri in before.into_iter().chain(all.keys().cloned()).collect::<BTreeSet<Uri>>() {
            let list = all.remove(&uri).unwrap_or_default();
            self.publish(uri, None, list, false);
        }
    }

    /// Publishes the diagnostics of a file if they are other ones than before, or in any case.
    fn publish(&mut self, uri: Uri, version: Option<i32>, diagnostics: Vec<lsp_types::Diagnostic>, always: bool) {
        let before = self.published.get(&uri);
        if !always && before.map_or(diagnostics.is_empty(), |before| *before == diagnostics) {
            return;
        }
        let open = uri::path(&uri).and_then(|path| self.documents.open.get(&path));
        let version = version.or(open.map(|open| open.version));
        match diagnostics.is_empty() {
            true => drop(self.published.remove(&uri)),
            false => drop(self.published.insert(uri.clone(), diagnostics.clone())),
        }
        self.outbox.notify("textDocument/publishDiagnostics", PublishDiagnosticsParams { uri, diagnostics, version });
    }

    /// Answers what waits, as far as no further change comes in.
    fn answer(&mut self) {
        while let Some(request) = self.waiting.pop_front() {
            if !self.outbox.waits(&request.id) {
                continue;
            }
            if self.documents.workspaces.iter().any(|w| w.dirty) {
                self.waiting.push_front(request);
                return;
            }
            let (pool, client, documents) = (self.pool.as_ref(), &self.client, &mut self.documents);
            let work = || inside(pool, || answers::answer(documents, client, &request));
            match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Answer::Done(result)) => self.outbox.answer(&request.id, result),
                Ok(Answer::Again) => {
                    self.waiting.push_front(request);
                    return;
                }
                Err(_) => {
                    let why = Refusal(ErrorCode::InternalError, "this is a bug in spmd-check".to_string());
                    self.outbox.answer(&request.id, Err(why));
                }
            }
        }
    }

    /// Finds the types of open documents while nothing else is to do, so that they are there when somebody asks.
    /// Whether something came in meanwhile.
    fn prepare(&mut self, jobs: &Receiver<Job>) -> bool {
        let paths: Vec<PathBuf> = self.documents.open.keys().cloned().collect();
        for path in paths {
            if let Ok(job) = jobs.try_recv() {
                self.take(job);
                return true;
            }
            let pool = self.pool.as_ref();
            if let Some((workspace, file)) = self.documents.find(&path)
                && !workspace.has_types(file)
            {
                let work = || inside(pool, || workspace.types(file).is_some());
                if !matches!(catch_unwind(AssertUnwindSafe(work)), Ok(true)) {
                    return false;
                }
            }
        }
        false
    }
}

/// Runs something on the threads that have room for deep recursion.
pub fn inside<T: Send>(pool: Option<&rayon::ThreadPool>, work: impl FnOnce() -> T + Send) -> T {
    match pool {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

#[allow(deprecated)]
fn folders(params: &InitializeParams) -> Vec<PathBuf> {
    let given = params.workspace_folders.iter().flatten().filter_map(|folder| uri::path(&folder.uri));
    let mut out: Vec<PathBuf> = given.collect();
    if out.is_empty() {
        out.extend(params.root_uri.as_ref().and_then(uri::path));
    }
    if out.is_empty() {
        out.extend(params.root_path.as_ref().filter(|path| !path.is_empty()).map(PathBuf::from));
    }
    out.retain(|folder| is_project(folder));
    out
}

/// Whether a folder of the client's is one that can be meant: the top of the file system is what an editor names that was started there.
pub fn is_project(folder: &Path) -> bool {
    folder.parent().is_some()
}
