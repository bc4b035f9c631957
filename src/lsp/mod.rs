//! The language server: the checker in an editor, over standard input and output. In: messages of the Language Server Protocol. Out: answers
//! to every request, diagnostics, hints. Never: deciding what is wrong with a program; nothing outside this folder knows the protocol.
//!
//! Reading order: `transport.rs` (bytes), `server.rs` (messages, life cycle), `worker.rs` (the thread that checks), `events.rs` (what changed), `workspace.rs`
//! (one folder of a client), `text.rs` (positions); then a file for each thing that an editor asks.

mod actions;
mod answers;
mod capabilities;
mod definition;
mod events;
mod hints;
mod hover;
mod outbox;
mod publish;
mod server;
mod symbols;
mod text;
mod transport;
mod types;
mod uri;
mod words;
mod worker;
mod workspace;

/// Serves a client on standard input and output until it says goodbye; whether it did so in the right order.
pub fn serve() -> bool {
    serve_on(std::io::stdin(), std::io::stdout())
}

/// The same on other streams, for programs that play the client in the same process.
pub fn serve_on(input: impl std::io::Read, output: impl std::io::Write + Send + 'static) -> bool {
    server::serve(input, output)
}
