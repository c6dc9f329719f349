//! `payferry top`: the operator's console in a terminal.
//!
//! It reads the JSON routes of an operator's listener, and changes nothing.

mod draw;
mod sheets;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use payferry_domain::Timestamp;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use reqwest::{Client, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::{FAILED, now};
use sheets::{Order, Screen};

/// Time limit of one request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which the keyboard is checked for the end of the program.
const KEY_POLL: Duration = Duration::from_millis(200);
/// Size of the screen that `--once` prints.
const PRINTED: (u16, u16) = (140, 60);
/// Variable with the token, if there is no file.
const TOKEN_VARIABLE: &str = "PAYFERRY_OPERATOR_TOKEN";

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keys: 1 to 5 or Tab selects a screen, j and k scroll, s changes the order of the actors, q ends.

Examples:
  payferry top --url http://127.0.0.1:8081 --token-file operator-token
  payferry top --once --screen attention --url http://127.0.0.1:8081 --token-file operator-token"
)]
pub(super) struct Args {
    /// URL of an operator's listener.
    #[arg(long, value_name = "URL")]
    url: String,
    /// File with the token of an operator; without it, the variable PAYFERRY_OPERATOR_TOKEN has the token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Seconds between two readings.
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    every: u64,
    /// First screen.
    #[arg(long, default_value = "overview")]
    screen: Screen,
    /// Print the screen once, and end.
    #[arg(long)]
    once: bool,
}

/// The answers of the listener.
#[derive(Debug)]
struct Snapshot {
    overview: Value,
    attention: Value,
    messages: Value,
    at: Timestamp,
}

/// State of the screen.
#[derive(Debug)]
struct View {
    url: String,
    screen: Screen,
    order: Order,
    /// First shown row.
    top: usize,
    /// Last successful reading.
    snapshot: Option<Snapshot>,
    /// Error of the last reading.
    error: Option<String>,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let token = match &args.token_file {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
        None => std::env::var(TOKEN_VARIABLE)
            .with_context(|| format!("name the file of the token with --token-file, or set {TOKEN_VARIABLE}"))?,
    };
    let source = Source {
        client: Client::builder().timeout(ANSWER_TIMEOUT).build()?,
        url: args.url.trim_end_matches('/').to_owned(),
        token: Zeroizing::new(token.trim().to_owned()),
    };
    let mut view = View::new(source.url.clone(), args.screen);
    if args.once {
        view.read(source.read().await);
        println!("{}", draw::text(&view, PRINTED, now()));
        return Ok(if view.error.is_some() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS });
    }
    anyhow::ensure!(std::io::stdout().is_terminal(), "the output is no terminal; use --once");
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &mut view, source, Duration::from_secs(args.every)).await;
    ratatui::restore();
    shown.map(|()| ExitCode::SUCCESS)
}

/// Shows the view until the operator ends it.
async fn show(terminal: &mut DefaultTerminal, view: &mut View, source: Source, every: Duration) -> anyhow::Result<()> {
    let (reading, mut readings) = mpsc::channel(1);
    tokio::spawn(async move {
        while reading.send(source.read().await).await.is_ok() {
            tokio::time::sleep(every).await;
        }
    });
    let (key, mut keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !key.is_closed() {
            match event::poll(KEY_POLL).and_then(|is_there| if is_there { event::read().map(Some) } else { Ok(None) }) {
                Ok(Some(event)) => _ = key.blocking_send(event),
                Ok(None) => {}
                Err(_) => break,
            }
        }
    });
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        terminal.draw(|frame| draw::draw(view, frame, now()))?;
        tokio::select! {
            Some(read) = readings.recv() => view.read(read),
            event = keys.recv() => match event {
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                    if is_interrupt || !view.press(key.code) {
                        return Ok(());
                    }
                }
                Some(_) => {}
                None => anyhow::bail!("the keyboard cannot be read"),
            },
            _ = seconds.tick() => {}
        }
    }
}

impl View {
    const fn new(url: String, screen: Screen) -> Self {
        Self { url, screen, order: Order::Mailbox, top: 0, snapshot: None, error: None }
    }

    fn read(&mut self, read: Result<Snapshot, String>) {
        match read {
            Ok(snapshot) => (self.snapshot, self.error) = (Some(snapshot), None),
            Err(error) => self.error = Some(error),
        }
    }

    /// Carries out a key. Returns false at the end.
    fn press(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char(digit @ '1'..='5') => self.select(Screen::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab | KeyCode::Right => self.select(self.screen.next()),
            KeyCode::BackTab | KeyCode::Left => self.select(self.screen.previous()),
            KeyCode::Char('j') | KeyCode::Down => self.top += 1,
            KeyCode::Char('k') | KeyCode::Up => self.top = self.top.saturating_sub(1),
            KeyCode::Char('g') | KeyCode::Home => self.top = 0,
            KeyCode::Char('s') => self.order = self.order.next(),
            _ => {}
        }
        true
    }

    fn select(&mut self, screen: Screen) {
        (self.screen, self.top) = (screen, 0);
    }
}

/// An operator's listener.
struct Source {
    client: Client,
    url: String,
    token: Zeroizing<String>,
}

impl Source {
    async fn read(&self) -> Result<Snapshot, String> {
        let (overview, attention, messages) =
            tokio::try_join!(self.get("/ops/overview"), self.get("/ops/stuck?limit=50"), self.get("/ops/messages"),)?;
        Ok(Snapshot { overview, attention, messages, at: now() })
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(self.token.as_str());
        let reason = |error: reqwest::Error| {
            if error.is_timeout() {
                format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())
            } else {
                "the listener cannot be reached".to_owned()
            }
        };
        let answer = request.send().await.map_err(reason)?;
        match answer.status() {
            StatusCode::OK => answer.json().await.map_err(|_| "the answer is no JSON".to_owned()),
            StatusCode::UNAUTHORIZED => Err("the token is not valid".to_owned()),
            status => Err(format!("{path} answered {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_select_scroll_and_end() {
        let mut view = View::new(String::new(), Screen::Overview);
        for (key, screen, top) in [
            (KeyCode::Char('3'), Screen::Actors, 0),
            (KeyCode::Char('j'), Screen::Actors, 1),
            (KeyCode::Down, Screen::Actors, 2),
            (KeyCode::Char('k'), Screen::Actors, 1),
            (KeyCode::Tab, Screen::Messages, 0),
            (KeyCode::Up, Screen::Messages, 0),
            (KeyCode::Right, Screen::Log, 0),
            (KeyCode::Right, Screen::Overview, 0),
            (KeyCode::Left, Screen::Log, 0),
        ] {
            assert!(view.press(key), "{key:?}");
            assert_eq!((view.screen, view.top), (screen, top), "{key:?}");
        }
        view.press(KeyCode::Char('s'));
        assert_eq!(view.order, Order::Handling);
        assert!(!view.press(KeyCode::Char('q')) && !view.press(KeyCode::Esc));
    }

    #[test]
    fn failed_reading_keeps_the_last_figures() {
        let mut view = View::new(String::new(), Screen::Overview);
        let snapshot =
            Snapshot { overview: Value::Null, attention: Value::Null, messages: Value::Null, at: Timestamp(5) };
        view.read(Ok(snapshot));
        view.read(Err("no answer within 5 s".to_owned()));
        assert!(view.snapshot.is_some() && view.error.is_some());
    }
}
