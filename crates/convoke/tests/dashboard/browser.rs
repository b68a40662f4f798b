//! A real browser: headless Chromium, driven through chromedriver.

use super::http::Http;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use convoke_testkit::{PATIENCE, Process, skip};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where to keep pictures of the pages; without it none are kept.
const IMAGES: &str = "CONVOKE_SCREENSHOTS";

/// Between two looks at the page.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Browser {
    driver: String,
    session: String,
    _process: Process,
    _profile: TempDir,
}

impl Browser {
    /// `None` if there is no browser on this machine; the test is then skipped.
    pub fn start() -> Option<Browser> {
        let Some(driver) = chromedriver() else {
            let test = std::thread::current();
            skip(test.name().unwrap_or("dashboard"), "needs chromedriver (packages chromium and chromium-driver)");
            return None;
        };
        let process = Process::spawn(Command::new(driver).arg("--port=0"));
        let line = process.line("with its port", |line| line.contains("started successfully on port "));
        let port = line.rsplit(' ').next().map(|port| port.trim_end_matches('.')).expect("a port");
        let driver = format!("127.0.0.1:{port}");
        let profile = tempfile::tempdir().expect("a directory");
        let mut flags: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-color-profile=srgb",
        ]
        .map(str::to_owned)
        .to_vec();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wish = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let (status, answer) = Http::connect(&driver).ask("POST", "/session", &wish.to_string());
        assert_eq!(status, 200, "{answer}");
        let session = format!("/session/{}", answer["value"]["sessionId"].as_str().expect("a session"));
        let browser = Browser { driver, session, _process: process, _profile: profile };
        browser.size(1280, 800, false);
        browser.scheme("light");
        Some(browser)
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = Http::connect(&self.driver).ask(method, &format!("{}{path}", self.session), &body);
        assert_eq!(status, 200, "{path}: {answer}");
        answer["value"].clone()
    }

    /// A command of the browser's own protocol.
    #[track_caller]
    pub fn command(&self, name: &str, parameters: &Value) -> Value {
        self.ask("POST", "/goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    pub fn size(&self, width: u32, height: u32, phone: bool) {
        let scale = if phone { 2 } else { 1 };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone});
        self.command("Emulation.setDeviceMetricsOverride", &size);
    }

    /// The system's colours: `light` or `dark`.
    pub fn scheme(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", &features);
    }

    #[track_caller]
    pub fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({"url": url}));
    }

    /// Runs a script in the page; its `return` is the answer.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs a script that ends by calling `done(value)`.
    #[track_caller]
    pub fn run_long(&self, script: &str) -> Value {
        let script = format!("const done = arguments[arguments.length - 1]; {script}");
        self.ask("POST", "/execute/async", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression of the page is true.
    #[track_caller]
    pub fn wait(&self, what: &str, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({expression})")) != true {
            if Instant::now() > end {
                let shown = self.run("return document.body.innerText");
                panic!("never: {what}\n{}\nconsole: {:#?}", shown.as_str().unwrap_or_default(), self.console());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The text of the first element that matches.
    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({})?.innerText ?? ''", json!(selector));
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Writes into the filter, as a user does.
    #[track_caller]
    pub fn write_filter(&self, text: &str) {
        let script = format!(
            "const box = document.querySelector('[data-filter]'); box.focus(); box.value = {}; \
             box.dispatchEvent(new InputEvent('input', {{bubbles: true}}));",
            json!(text)
        );
        self.run(&script);
    }

    /// What the page complained about since the last call.
    pub fn console(&self) -> Vec<String> {
        let entries = self.ask("POST", "/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().into_iter().flatten();
        entries.map(|entry| format!("{} {}", entry["level"], entry["message"])).collect()
    }

    /// Keeps a picture, if pictures are wanted.
    pub fn picture(&self, name: &str) {
        let Some(directory) = std::env::var_os(IMAGES) else { return };
        let picture = self.ask("GET", "/screenshot", &Value::Null);
        let bytes = STANDARD.decode(picture.as_str().unwrap_or_default()).expect("a picture");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
        std::fs::write(path.join(format!("{name}.png")), bytes).expect("the picture can be kept");
    }
}

impl Drop for Browser {
    /// Ends the browser: the driver alone would leave it behind.
    fn drop(&mut self) {
        Http::connect(&self.driver).ask("DELETE", &self.session, "");
    }
}

fn chromedriver() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("chromedriver")).find(|file| file.is_file())
}
