//! A frame from a state, and nothing else: no clock, no file, no terminal. The block of text is the same lines.

use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::slice::{Device, Divisor, Slice};
use super::state::State;

/// What a frame takes at least.
const LEAST: (u16, u16) = (40, 10);

/// Of a block of text.
const BLOCK: (usize, usize) = (100, 26);

/// From here on the means stand beside the last interval.
const WIDE: usize = 72;

const HELP: &[&str] = &[
    "q, ^C    quit; a workload is ended in order, and its result is shown",
    "space    pause the picture; what is counted goes on",
    "c        classes of work, or symbols",
    "t        threads: all, those that send (ask), those that receive (answer), others",
    "+  -     a longer, a shorter interval",
    "?        this",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Title,
    Heading,
    Warning,
    Hot,
}

/// Draws a frame.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("too small: {}x{} at least", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = lines(state, width, height - 1);
    lines.resize(height - 1, (Kind::Plain, String::new()));
    lines.push((Kind::Title, keys(width).to_owned()));
    let line = |(kind, text): (Kind, String)| Line::from(Span::styled(text, style(kind, state.colour)));
    frame.render_widget(Paragraph::new(lines.into_iter().map(line).collect::<Vec<_>>()), area);
}

/// A block of text.
pub(crate) fn text(state: &State) -> String {
    let mut text = String::new();
    for (_, line) in lines(state, BLOCK.0, BLOCK.1) {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn keys(width: usize) -> &'static str {
    if width >= WIDE {
        "q quit  space pause  c classes  t threads  + - interval  ? help"
    } else {
        "q quit  space pause  ? help"
    }
}

fn style(kind: Kind, colour: bool) -> Style {
    let style = Style::new();
    match kind {
        Kind::Plain => style,
        Kind::Heading => style.add_modifier(Modifier::REVERSED),
        Kind::Warning if colour => style.fg(Color::Yellow),
        Kind::Hot if colour => style.fg(Color::Red),
        Kind::Title | Kind::Warning | Kind::Hot => style.add_modifier(Modifier::BOLD),
    }
}

fn lines(state: &State, width: usize, height: usize) -> Vec<(Kind, String)> {
    let mut lines = vec![(Kind::Title, title(state))];
    if state.help {
        lines.extend(HELP.iter().map(|line| (Kind::Plain, (*line).to_owned())));
    } else if let Some(slice) = &state.last {
        measured(state, slice, width, height, &mut lines);
    } else {
        lines.push((Kind::Plain, "the first interval is not over yet".to_owned()));
    }
    for (_, line) in &mut lines {
        *line = fitted(line, width);
    }
    lines.truncate(height);
    lines
}

fn title(state: &State) -> String {
    let what = state.title.as_deref().unwrap_or("this host");
    let phase = state.last.as_ref().map(|slice| slice.phase.as_str()).filter(|phase| !phase.is_empty());
    let phase = phase.map_or_else(String::new, |phase| format!(" ({phase})"));
    let mark = match (state.ending, state.paused) {
        (true, _) => "ENDING  ",
        (false, true) => "PAUSED  ",
        (false, false) => "",
    };
    format!("{mark}haul top, each {:?}: {}{phase}", state.interval, clean(what))
}

fn measured(state: &State, slice: &Slice, width: usize, height: usize, lines: &mut Vec<(Kind, String)>) {
    if let Some((bytes, transactions)) = slice.rates {
        let rate = match (transactions, bytes) {
            (Some(transactions), _) => format!("{}transactions/s", si(transactions)),
            (None, Some(bytes)) => format!("{}bit/s of payload", si(bytes * 8.0)),
            (None, None) => "nothing told".to_owned(),
        };
        lines.push((Kind::Plain, format!("moved   {rate}")));
    } else if state.title.is_some() {
        lines.push((Kind::Plain, "moved   nothing told in this interval".to_owned()));
    } else {
        let shown = if height >= 20 { 3 } else { 1 };
        lines.extend(slice.devices.iter().take(shown).map(|device| (Kind::Plain, of_device(device, width))));
    }
    let cpu = &slice.cpu;
    let all = (cpu.elapsed.as_secs_f64() * f64::from(cpu.ncpu)).max(1e-9);
    let share = |part: std::time::Duration| part.as_secs_f64() / all * 100.0;
    lines.push((
        Kind::Plain,
        format!(
            "CPU     busy {:.1} %  idle {:.1} %  softirq {:.1} %  steal {:.1} %  of {} CPUs",
            share(cpu.busy),
            100.0 - share(cpu.busy),
            share(cpu.softirq),
            share(cpu.steal),
            cpu.ncpu
        ),
    ));
    lines.push((Kind::Plain, demand(state, slice)));
    let spent = slice.own.as_secs_f64() / cpu.elapsed.as_secs_f64().max(1e-9) * 100.0;
    let lost = if slice.lost > 0 { format!("  lost {}", slice.lost) } else { String::new() };
    let event = if slice.event.is_empty() { "nothing" } else { &slice.event };
    lines.push((
        Kind::Plain,
        format!(
            "itself  {spent:.1} % of a CPU, mean {:.1} %  samples {} by {event}{lost}  {}",
            state.own_share() * 100.0,
            slice.samples,
            state.whose.name()
        ),
    ));
    if let Err(reason) = &slice.symbols {
        lines.push((Kind::Warning, format!("no symbols: {}", clean(reason))));
        return;
    }
    let unit = state.per_unit().unwrap_or("s");
    let cost = if unit == "transaction" { "ns/trans".to_owned() } else { format!("ns/{unit}") };
    let name = if state.by_class { "class" } else { "symbol" };
    lines.push((
        Kind::Heading,
        if width >= WIDE {
            pad(
                &format!("{:>7} {:>7} {cost:>9} {:>9}  {:<10} {name}", "share", "mean", "mean", "class"),
                width,
            )
        } else {
            pad(&format!("{:>7} {cost:>9}  {name}", "share"), width)
        },
    ));
    for row in state.rows(height.saturating_sub(lines.len())) {
        let (now, mean) = (row.share * 100.0, row.mean_share * 100.0);
        let kind = if row.share >= 0.1 { Kind::Hot } else { Kind::Plain };
        let text = if width >= WIDE {
            format!(
                "{now:>5.1} % {mean:>5.1} % {:>9} {:>9}  {:<10} {}",
                short(row.cost),
                short(row.mean_cost),
                row.class.name(),
                clean(&row.name)
            )
        } else {
            format!("{now:>5.1} % {:>9}  {}", short(row.cost), clean(&row.name))
        };
        lines.push((kind, text));
    }
}

fn of_device(device: &Device, width: usize) -> String {
    let Device { name, rx_bytes, tx_bytes, rx_packets, tx_packets } = device;
    let (rx, tx) = (si(rx_bytes * 8.0), si(tx_bytes * 8.0));
    if width >= WIDE {
        let (packets_in, packets_out) = (si(*rx_packets), si(*tx_packets));
        format!("{:<7} rx {rx}bit/s {packets_in}packets/s  tx {tx}bit/s {packets_out}packets/s", clean(name))
    } else {
        format!("{:<7} rx {rx}bit/s tx {tx}bit/s", clean(name))
    }
}

fn demand(state: &State, slice: &Slice) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
    let unit = slice.divisor.unit();
    let of = match &slice.divisor {
        Divisor::None => "nothing moved".to_owned(),
        Divisor::Payload(_) => "payload".to_owned(),
        Divisor::Transactions(_) => "transactions".to_owned(),
        Divisor::Device(name, _) if name == "lo" => "lo, each byte once".to_owned(),
        Divisor::Device(name, _) => format!("{}, rx + tx", clean(name)),
    };
    format!("demand  {} us/{unit}, mean {}  ({of})", number(slice.demand()), number(state.mean_demand()))
}

/// With a prefix, three digits: `61.1 G`.
fn si(value: f64) -> String {
    let (value, prefix) = match value {
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e3 => (value / 1e3, "k"),
        value => (value, ""),
    };
    let digits = if value >= 100.0 || prefix.is_empty() {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {prefix}")
}

/// A cost in few characters.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.1}k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

/// Names come from programs and arguments, and must not speak to the terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn pad(text: &str, width: usize) -> String {
    format!("{text:<width$}")
}

fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haul_host::probe::profile::Class;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::slice::tests::slice;

    fn state(divisor: Divisor) -> State {
        let title = (!matches!(divisor, Divisor::Device(..))).then(|| "stream lab --cc reno".to_owned());
        let mut state = State::new(Duration::from_secs(1), title, false);
        let many: Vec<String> = (0..60).map(|number| format!("symbol_{number:02}")).collect();
        let mut symbols = vec![("copy_to_iter", Class::Copy, 4e8), ("tcp_ack", Class::Tcp, 5e7)];
        symbols.extend(
            many.iter().enumerate().map(|(at, name)| (name.as_str(), Class::Other, 4e7 / (at + 1) as f64)),
        );
        state.take(slice(divisor, &symbols));
        state
    }

    fn frame(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a backend");
        terminal.draw(|frame| draw(frame, state)).expect("a frame");
        terminal.backend().to_string()
    }

    #[test]
    fn frames_of_every_size_are_as_they_were() {
        let stream = state(Divisor::Payload(5e9));
        for (width, height) in [(80, 24), (120, 40), (40, 10), (39, 10), (40, 9), (8, 1)] {
            insta::assert_snapshot!(format!("stream_{width}x{height}"), frame(&stream, width, height));
        }
        insta::assert_snapshot!("host_80x24", frame(&state(Divisor::Device("eth0".into(), 1.2e9)), 80, 24));
        insta::assert_snapshot!("transactions_80x24", frame(&state(Divisor::Transactions(2e4)), 80, 24));
    }

    #[test]
    fn keys_show_in_the_frame() {
        let mut state = state(Divisor::Payload(5e9));
        state.by_class = true;
        let by_class = frame(&state, 80, 24);
        assert!(by_class.contains(" copy ") && !by_class.contains("copy_to_iter"), "{by_class}");
        state.by_class = false;
        state.whose = state.whose.next().next();
        let receiving = frame(&state, 80, 24);
        assert!(
            receiving.contains("receiving threads") && !receiving.contains("copy_to_iter"),
            "{receiving}"
        );
        state.paused = true;
        assert!(frame(&state, 80, 24).contains("PAUSED"));
        state.help = true;
        assert!(frame(&state, 80, 24).contains("quit; a workload is ended in order"));
    }

    #[test]
    fn what_forbids_the_symbols_is_one_line_and_the_rest_stays() {
        let mut state = state(Divisor::Payload(5e9));
        let mut last = state.last.take().expect("an interval");
        last.symbols = Err("kernel.perf_event_paranoid = 4\u{1b}[2J".to_owned());
        state.take(last);
        let shown = frame(&state, 80, 24);
        assert!(
            shown.contains("no symbols: kernel.perf_event_paranoid = 4") && shown.contains("CPU "),
            "{shown}"
        );
        assert!(!shown.contains('\u{1b}'), "nothing speaks to the terminal");
    }

    #[test]
    fn no_size_and_no_state_makes_it_panic() {
        for state in [State::new(Duration::from_secs(1), None, true), state(Divisor::None)] {
            for width in (0..130).step_by(7) {
                for height in 0..45 {
                    frame(&state, width.max(1), height.max(1));
                }
            }
        }
    }
}
