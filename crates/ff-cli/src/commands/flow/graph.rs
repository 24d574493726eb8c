//! Draws a graph for people, for Graphviz and for Mermaid.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::Form;

pub struct Graph {
    nodes: Vec<Node>,
    /// From and to, as places in the list of nodes.
    edges: Vec<(usize, usize)>,
}

struct Node {
    name: String,
    kind: String,
    state: String,
    needs: String,
}

impl Graph {
    /// The nodes in an order in which each stands behind those that it waits for.
    pub fn read(answer: &Value) -> Self {
        let items = |name: &str| answer[name].as_array().map_or(&[][..], Vec::as_slice);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ids: HashMap<String, usize> =
            items("nodes").iter().map(|node| text(&node["execution_id"])).zip(0..).collect();
        let place = |value: &Value| value.as_str().and_then(|id| ids.get(id)).copied();
        let edges: Vec<(usize, usize)> = items("edges")
            .iter()
            .filter_map(|edge| Some((place(&edge["from"])?, place(&edge["to"])?)))
            .collect();
        let nodes: Vec<Node> = items("nodes").iter().map(node).collect();
        Self { nodes, edges }.sorted()
    }

    fn sorted(self) -> Self {
        let depths = self.depths();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|place| depths[*place]);
        let mut new = vec![0; order.len()];
        for (at, place) in order.iter().enumerate() {
            new[*place] = at;
        }
        let mut nodes: Vec<(usize, Node)> =
            self.nodes.into_iter().enumerate().map(|(place, node)| (new[place], node)).collect();
        nodes.sort_by_key(|(at, _)| *at);
        let edges = self.edges.iter().map(|(from, to)| (new[*from], new[*to])).collect();
        Self { nodes: nodes.into_iter().map(|(_, node)| node).collect(), edges }
    }

    /// The longest way to each node. Graphs have no cycles, so that ends.
    fn depths(&self) -> Vec<usize> {
        let mut depths = vec![0; self.nodes.len()];
        for _ in 0..self.nodes.len() {
            let mut changed = false;
            for (from, to) in &self.edges {
                if depths[*to] <= depths[*from] {
                    depths[*to] = depths[*from] + 1;
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        depths
    }

    pub fn draw(&self, form: Form) -> String {
        match form {
            Form::Text => self.text(),
            Form::Dot => self.dot(),
            Form::Mermaid => self.mermaid(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (place, node) in self.nodes.iter().enumerate() {
            let parents = self.edges.iter().filter(|(_, to)| *to == place);
            let parents: Vec<&str> =
                parents.map(|(from, _)| self.nodes[*from].name.as_str()).collect();
            let _ = write!(text, "{} ({}): {}", node.name, node.kind, node.state);
            if !parents.is_empty() {
                let _ = write!(text, "  after {} of {}", node.needs, parents.join(", "));
            }
            text.push('\n');
        }
        text
    }

    fn dot(&self) -> String {
        let mut text = "digraph flow {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
        for (place, node) in self.nodes.iter().enumerate() {
            let label = quoted(&format!("{}\n{}", node.name, node.state));
            let _ = writeln!(text, "  n{place} [label={label}];");
        }
        for (from, to) in &self.edges {
            let _ = writeln!(text, "  n{from} -> n{to};");
        }
        text + "}\n"
    }

    fn mermaid(&self) -> String {
        let mut text = "flowchart LR\n".to_owned();
        for (place, node) in self.nodes.iter().enumerate() {
            let label = format!("{}: {}", node.name, node.state);
            let label = label.replace('"', "#quot;");
            let _ = writeln!(text, "  n{place}[\"{label}\"]");
        }
        for (from, to) in &self.edges {
            let _ = writeln!(text, "  n{from} --> n{to}");
        }
        text
    }
}

fn node(node: &Value) -> Node {
    let plain = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>()
    };
    let name = match plain(&node["name"]) {
        name if name.is_empty() => plain(&node["execution_id"]),
        name => name,
    };
    let policy = &node["group"]["policy"];
    let needs = match (policy["kind"].as_str(), policy["k"].as_u64()) {
        (Some("any_of"), _) => "one".to_owned(),
        (Some("quorum"), Some(k)) => k.to_string(),
        _ => "all".to_owned(),
    };
    Node { name, kind: plain(&node["execution_kind"]), state: plain(&node["public_state"]), needs }
}

/// As Graphviz reads a text.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn diamond() -> Graph {
        let node = |id: &str, name: &str, policy: Value| {
            json!({"execution_id": id, "name": name, "execution_kind": "k",
                   "public_state": "waiting", "group": {"policy": policy}})
        };
        // The last one stands first in the answer.
        let nodes = [
            node("4", "sum", json!({"kind": "quorum", "k": 1})),
            node("1", "a \"b\"", Value::Null),
            node("2", "left", json!({"kind": "all_of"})),
        ];
        let edges = [json!({"from": "1", "to": "2"}), json!({"from": "2", "to": "4"})];
        Graph::read(&json!({ "nodes": nodes, "edges": edges }))
    }

    #[test]
    fn nodes_stand_behind_those_that_they_wait_for() {
        assert_eq!(
            diamond().draw(Form::Text),
            "a \"b\" (k): waiting\nleft (k): waiting  after all of a \"b\"\n\
             sum (k): waiting  after 1 of left\n"
        );
    }

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        let dot = diamond().draw(Form::Dot);
        assert!(dot.contains(r#"n0 [label="a \"b\"\nwaiting"];"#), "{dot}");
        assert!(dot.contains("n0 -> n1;") && dot.ends_with("}\n"), "{dot}");
        let mermaid = diamond().draw(Form::Mermaid);
        assert!(mermaid.contains("n0[\"a #quot;b#quot;: waiting\"]"), "{mermaid}");
        assert!(mermaid.contains("n1 --> n2"), "{mermaid}");
    }
}
