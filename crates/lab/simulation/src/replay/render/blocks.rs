//! A report as a list of blocks, which become text, Markdown or HTML.

use std::fmt::Write;

use crate::overload::{Format, Table};

use super::escape;
use super::line_chart::STYLE;

/// A part of a report.
#[derive(Clone, Debug)]
pub(crate) enum Block {
    Title(String),
    Heading(&'static str),
    Paragraph(String),
    List(Vec<String>),
    Table(Table),
    /// A diff or a command.
    Code(String),
    /// An SVG with the name of its file; only in HTML and as files.
    Chart(&'static str, String),
}

pub(crate) fn text(blocks: &[Block], format: Format) -> String {
    let mut out = String::new();
    let is_markdown = format == Format::Markdown;
    for block in blocks {
        let _ = match block {
            Block::Title(text) if is_markdown => writeln!(out, "# {text}\n"),
            Block::Title(text) => writeln!(out, "{text}\n"),
            Block::Heading(text) if is_markdown => writeln!(out, "## {text}\n"),
            Block::Heading(text) => writeln!(out, "{}", text.to_uppercase()),
            Block::Paragraph(text) => writeln!(out, "{text}\n"),
            Block::List(items) => {
                for item in items {
                    let _ = writeln!(out, "- {item}");
                }
                writeln!(out)
            }
            Block::Table(table) => writeln!(out, "{}\n", table.render(format)),
            Block::Code(text) if is_markdown => {
                writeln!(out, "```diff\n{}\n```\n", text.trim_end())
            }
            Block::Code(text) => writeln!(out, "{}\n", text.trim_end()),
            Block::Chart(..) => Ok(()),
        };
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

const PAGE_STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#222;background:#fff}h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem;border-bottom:1px solid #ddd;\
padding-bottom:.2rem}.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;\
font-size:.9rem}th,td{padding:.3rem .7rem;border-bottom:1px solid #e4e4e4;text-align:left}th{color:#555;\
font-weight:600}pre{background:#f5f6f7;padding:.8rem;overflow-x:auto;border-radius:6px;font-size:.85rem}\
ul{padding-left:1.2rem}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#14171a}h2{border-color:#333}th,td{border-color:#2c3136}\
th{color:#aaa}pre{background:#1d2226}}";

/// One page that needs nothing else: styles and charts are inside, and there is no script.
pub(crate) fn html(blocks: &[Block]) -> String {
    let title = blocks.iter().find_map(|block| match block {
        Block::Title(text) => Some(escape(text)),
        _ => None,
    });
    let title = title.unwrap_or_default();
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>{PAGE_STYLE}{STYLE}</style>\n</head>\n<body>\n"
    );
    for block in blocks {
        let _ = match block {
            Block::Title(text) => writeln!(out, "<h1>{}</h1>", escape(text)),
            Block::Heading(text) => writeln!(out, "<h2>{}</h2>", escape(text)),
            Block::Paragraph(text) => writeln!(out, "<p>{}</p>", escape(text)),
            Block::List(items) => {
                out.push_str("<ul>\n");
                for item in items {
                    let _ = writeln!(out, "<li>{}</li>", escape(item));
                }
                writeln!(out, "</ul>")
            }
            Block::Table(table) => writeln!(out, "{}", html_table(table)),
            Block::Code(text) => writeln!(out, "<pre>{}</pre>", escape(text.trim_end())),
            Block::Chart(_, svg) => writeln!(out, "<figure>{svg}</figure>"),
        };
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn html_table(table: &Table) -> String {
    let mut out = String::from("<div class=\"scroll\"><table>\n");
    for (index, row) in table.rows().iter().enumerate() {
        let tag = if index == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<{tag}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>");
    out
}
