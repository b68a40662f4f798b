//! A real browser: headless Chromium, driven through chromedriver.

use super::http::Http;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use convoke_testkit::{Process, TEST_TIMEOUT, skip};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Directory for screenshots; without it none are taken.
const IMAGES: &str = "CONVOKE_SCREENSHOTS";

/// Interval at which a condition is checked.
const PAUSE: Duration = Duration::from_millis(50);

/// Outputs of chromedriver. It chooses a free port of one address family, which may be in use in the other one.
const STARTED: &str = "started successfully on port ";
const TAKEN: &str = "port not available";
const STARTS_MAX: usize = 10;

pub struct Browser {
    driver: String,
    session: String,
    _process: Process,
    _profile: TempDir,
}

impl Browser {
    /// `None` if there is no browser on this machine; the test is then skipped.
    pub fn start() -> Option<Browser> {
        Browser::start_with(&[])
    }

    /// Starts it with further command line flags.
    pub fn start_with(more: &[&str]) -> Option<Browser> {
        let Some(driver) = chromedriver() else {
            let test = std::thread::current();
            skip(test.name().unwrap_or("dashboard"), "needs chromedriver (packages chromium and chromium-driver)");
            return None;
        };
        let start = || {
            let process = Process::spawn(Command::new(&driver).arg("--port=0"));
            let line = process.line("with its port", |line| [STARTED, TAKEN].iter().any(|text| line.contains(text)));
            line.contains(STARTED).then_some((process, line))
        };
        let (process, line) = (0..STARTS_MAX).find_map(|_| start()).expect("a port is free");
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
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let (status, answer) = Http::connect(&driver).request("POST", "/session", &capabilities.to_string());
        assert_eq!(status, 200, "{answer}");
        let session = format!("/session/{}", answer["value"]["sessionId"].as_str().expect("a session"));
        let browser = Browser { driver, session, _process: process, _profile: profile };
        browser.size(1280, 800, false);
        browser.scheme("light");
        Some(browser)
    }

    #[track_caller]
    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = Http::connect(&self.driver).request(method, &format!("{}{path}", self.session), &body);
        assert_eq!(status, 200, "{path}: {answer}");
        answer["value"].clone()
    }

    /// Sends a command of the browser's own protocol.
    #[track_caller]
    pub fn command(&self, name: &str, parameters: &Value) -> Value {
        self.request("POST", "/goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    pub fn size(&self, width: u32, height: u32, phone: bool) {
        let scale = if phone { 2 } else { 1 };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone});
        self.command("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Sets the colour scheme of the system: `light` or `dark`.
    pub fn scheme(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", &features);
    }

    #[track_caller]
    pub fn open(&self, url: &str) {
        self.request("POST", "/url", &json!({"url": url}));
    }

    /// Runs a script in the page and returns its value.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.request("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs an asynchronous script, which ends with a call of `done(value)`.
    #[track_caller]
    pub fn run_long(&self, script: &str) -> Value {
        let script = format!("const done = arguments[arguments.length - 1]; {script}");
        self.request("POST", "/execute/async", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression of the page is true.
    #[track_caller]
    pub fn wait(&self, what: &str, expression: &str) {
        let end = Instant::now() + TEST_TIMEOUT;
        while self.run(&format!("return Boolean({expression})")) != true {
            if Instant::now() > end {
                let shown = self.run("return document.body.innerText");
                panic!(
                    "condition not met: {what}\n{}\nconsole: {:#?}",
                    shown.as_str().unwrap_or_default(),
                    self.console()
                );
            }
            #[allow(clippy::disallowed_methods, reason = "the pause between two looks at the page")]
            std::thread::sleep(PAUSE);
        }
    }

    /// Returns the text of the first matching element.
    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({})?.innerText ?? ''", json!(selector));
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Types into the filter like a user.
    #[track_caller]
    pub fn write_filter(&self, text: &str) {
        let script = format!(
            "const box = document.querySelector('[data-filter]'); box.focus(); box.value = {}; \
             box.dispatchEvent(new InputEvent('input', {{bubbles: true}}));",
            json!(text)
        );
        self.run(&script);
    }

    /// Returns the browser console messages since the last call.
    pub fn console(&self) -> Vec<String> {
        let entries = self.request("POST", "/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().into_iter().flatten();
        entries.map(|entry| format!("{} {}", entry["level"], entry["message"])).collect()
    }

    /// Takes a screenshot if they are enabled.
    pub fn picture(&self, name: &str) {
        let Some(directory) = std::env::var_os(IMAGES) else { return };
        let picture = self.request("GET", "/screenshot", &Value::Null);
        let bytes = STANDARD.decode(picture.as_str().unwrap_or_default()).expect("a picture");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory);
        std::fs::write(path.join(format!("{name}.png")), bytes).expect("the picture can be kept");
    }
}

impl Drop for Browser {
    /// Closes the browser, which would outlive the driver otherwise.
    fn drop(&mut self) {
        Http::connect(&self.driver).request("DELETE", &self.session, "");
    }
}

fn chromedriver() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join("chromedriver")).find(|file| file.is_file())
}
