// Starts `spmd-check server` and hands it to the editor's language client. Nothing else: all answers come from the server.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function settings() {
  const all = vscode.workspace.getConfiguration("spmd-check");
  return { config: all.get("config"), inlayHints: all.get("inlayHints") };
}

async function start() {
  const command = vscode.workspace.getConfiguration("spmd-check").get("path") || "spmd-check";
  client = new LanguageClient(
    "spmd-check",
    "spmd-check",
    { command, args: ["server"] },
    {
      documentSelector: [{ scheme: "file", language: "python" }],
      initializationOptions: settings(),
      synchronize: { configurationSection: "spmd-check" },
    },
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(`spmd-check does not start (\`${command} server\`): ${error.message}`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running && running.isRunning()) {
    await running.stop();
  }
}

async function activate(context) {
  const restart = vscode.commands.registerCommand("spmd-check.restart", async () => {
    await stop();
    await start();
  });
  const moved = vscode.workspace.onDidChangeConfiguration(async (change) => {
    if (change.affectsConfiguration("spmd-check.path")) {
      await stop();
      await start();
    }
  });
  context.subscriptions.push(restart, moved);
  await start();
}

module.exports = { activate, deactivate: stop };
