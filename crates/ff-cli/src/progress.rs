//! Long work says on stderr how far it has come: with a bar on a terminal, and otherwise with one
//! line at its beginning.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::say;

/// How often a bar is drawn, and looked after while somebody waits.
const HZ: u8 = 10;
const LOOK: Duration = Duration::from_millis(100);

const BAR: &str = "{msg} [{bar:30}] {human_pos} of {human_len}, {eta} to go";
const SPINNER: &str = "{spinner} {msg}, {elapsed} so far";

/// Gone from the terminal when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Something that takes its time, nobody knows how long.
    pub fn spinner(what: &str) -> Self {
        Self::begin(what, None, stderr())
    }

    /// So many things, one after the other.
    pub fn bar(what: &str, total: u64) -> Self {
        Self::begin(what, Some(total), stderr())
    }

    fn begin(what: &str, total: Option<u64>, target: ProgressDrawTarget) -> Self {
        if target.is_hidden() {
            say(what);
        }
        let bar = ProgressBar::with_draw_target(total, target);
        let template = if total.is_some() { BAR } else { SPINNER };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self(bar)
    }

    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Draws again and again until the work is done; `done` says how much of it is.
    pub async fn during<T>(&self, work: impl Future<Output = T>, done: impl Fn() -> u64) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(LOOK, &mut work).await {
                Ok(ended) => return ended,
                Err(_) => {
                    self.0.set_position(done());
                    self.0.tick();
                }
            }
        }
    }

    /// The same where nobody knows how much is done.
    pub async fn spin<T>(&self, work: impl Future<Output = T>) -> T {
        self.during(work, || 0).await
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn stderr() -> ProgressDrawTarget {
    ProgressDrawTarget::stderr_with_hz(HZ)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// A terminal that remembers what was written to it.
    #[derive(Clone, Debug, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn write(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.write(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.write("<cleared>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminal_shows_how_far_it_is() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 200);
        let progress = Progress::begin("counting", Some(10), target);
        // Bars are drawn by the clock of the host, which is not that of the test.
        let drawn = || screen.0.lock().unwrap().contains("7 of 10");
        while !drawn() {
            progress.during(tokio::time::sleep(LOOK * 2), || 7).await;
        }
        drop(progress);
        let seen = screen.0.lock().unwrap().clone();
        assert!(seen.contains("counting [") && seen.ends_with("<cleared>"), "{seen}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_comes_through() {
        let progress = Progress::begin("waiting", None, ProgressDrawTarget::hidden());
        let work = async {
            tokio::time::sleep(LOOK * 5).await;
            42
        };
        assert_eq!(progress.spin(work).await, 42);
    }
}
