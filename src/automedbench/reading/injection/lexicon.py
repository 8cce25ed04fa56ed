"""The words that the patterns are made of: who judges, what is ordered, which verdicts there are.

A part is a regular expression over words (``words.py``) in which ``<name>`` stands for another part, `` ~8 `` for up to
eight words of one sentence and ``~~8`` for up to eight words of any.
"""

from __future__ import annotations

import re

_PARTS = {
    # who is addressed
    "who": (
        "(?:judges?|juries|jury|(?:auto ?)?graders?|evaluators?|assessors?|raters?|scorers?|examiners?"
        "|reviewers?|auditors?|arbiters?|adjudicators?|referees?|(?:judging|grading|scoring|evaluation"
        "|evaluating|reviewing|judge|grader) (?:models?|systems?|llms?|agents?|assistants?|bots?|ais?)"
        "|(?:automated|automatic|ai|llm|language model) (?:judging|grading|scoring|evaluation|review"
        r"|assessment)(?: (?:models?|systems?|tools?|pipelines?|bots?|agents?))?|who ?ever (?:\w+ )?(?:reads"
        "|grades|judges|scores|evaluates|reviews|rates|marks) (?:this|it|these)|(?:ais?|llms?"
        "|models?) (?:that|who|which|reading|judging|grading|scoring|evaluating|reviewing)(?: (?:is|are"
        r"|reads?|grades?|judges?|scores?|evaluates?|reading|grading|judging))? (?:\w+ )?(?:this|it))"
    ),
    # orders: verbs in the form of an order, since "gives" or "will give" describe
    "give": (
        "(?<!will )(?<!would )(?<!can )(?<!could )(?<!may )(?<!might )(?<!does )(?<!did )(?:give|award|assign|grant)"
    ),
    "set": (
        "(?:rate|score|grade|mark|set|return|output|print|write|answer|respond|reply|report|credit|record|put"
        "|enter|conclude|declare|choose|select|issue|produce|emit|use|accept|approve|pass)"
    ),
    "ask": (
        "(?::|please|must|should|shall|kindly|you|needs? to|ha(?:s|ve) to|ought to|(?:is"
        "|are) (?:hereby )?(?:instructed |asked |told |ordered |required |requested |expected |obliged )?to)"
    ),
    "start": (
        "(?:^|[.:] |please |must |should |always |simply |just |instead |now |therefore |hence |kindly |so |but |you "
        "|(?<= ))"
    ),
    # verdicts: those that name themselves, those that mean something else to a modeller, and numbers
    "full": (
        "(?:(?:full|perfect|top|maximum|maximal|max|complete|highest)(?: possible| available"
        "| attainable)? (?:marks|credits?|verdicts?)|(?:full|perfect|maximum|max|top)(?: possible)? points"
        "|(?:full|perfect) scores?|straight (?:ones|1s|tens|as))"
    ),
    "best": (
        "(?:highest|maximum|maximal|max|top|best|full|perfect|positive|favou?rable)(?: possible| available"
        "| attainable)? (?:scores?|grades?|marks?|ratings?|values?|points?|levels?|verdicts?)"
    ),
    "one": r"(?:1\.0+|100%?|10/10|5/5|100/100|20/20|1\.0/1\.0|all ones)(?! (?:cases?|images?|files?|of))",
    # what a verdict is given to
    "criterion": "s[1-3][a-f]",
    "all": (
        "(?:each|every|all|any)(?: (?:of|the|single|rubric|judged|judging|agentic|grading|evaluation"
        r"|\d+)){0,6} (?:criteri(?:on|a)|rubrics?|verdicts?|sub ?scores)"
    ),
    "this": (
        r"(?:this|the|my|our) (?:\w+ )?(?:run|agent|submission|transcript|attempt|trajectory|workflow"
        r"|participant)|every stage|all (?:\w+ )?stages|each stage"
    ),
    "object": "(?:<criterion>|s[1-5]|stages? [1-5]|<all>|<this>|everything|verdicts?|rubric|criteri(?:on|a)|me|us)",
    # full credit is also given to authors and data sets
    "no_thanks": (
        r"(?! to (?!this|me|my|our|us|it|every|each|all|s[1-5]|the (?:\w+ )?(?:run|agent|submission|candidate"
        "|transcript)))"
    ),
    # verdicts in the form of an answer
    "short": (
        "(?: (?:is|are|was|as|to|of|at|a|an|the|verdicts?|scores?|values?|levels?|grades?|marks?|status|stage"
        "|earned|fully|:)){0,6}"
    ),
    "value": r"(?:1(?:\.0+)?|0?\.5|100%?|true|met|pass(?:ed)?|yes|full|satisfied|earned)(?! when)(?!\S)",
    "pair": r"\b(?:<criterion>(?: (?!<criterion>\b)\S+){0,6}?|s3<short>) <value>",
    "top": r"(?:1(?:\.0+)?|100%?|10/10|1/1|1\.0/1\.0|full(?: marks| credit)?|met|passed)(?!\S)",
    "stages": r"\bs1<short> <top> ~5 s2<short> <top> ~5 s3<short> <top>",
    "title": (
        "(?:plan written|pipeline described|fitting method|three candidates|plan drawn"
        "|drawing shows the pipeline|weights obtained|input inspected|environment works|few set up failures"
        "|model on the gpu|tried and checked)"
    ),
    "earned": r"(?:earned|met|satisfied|1(?:\.0+)?|credited|full)",
    # roles, appeals, authority
    "ignore": (
        "(?<!may )(?<!might )(?<!can )(?<!could )(?<!will )(?<!would )(?<!they )(?<!models )(?<!sometimes"
        " )(?<!to )(?:ignore|disregard|forget|override|bypass|discard|neglect)"
    ),
    "rules_of": (
        "(?:(?:previous|prior|above|earlier|preceding|your|these|those|other|original|initial|existing|system"
        "|grading|judging|scoring|all|any|of|the|and) ){1,8}(?:instructions?|rubrics?|guidelines?|directives?"
        "|criteria|system prompts?|directions|orders|rules of grading|scoring rules|grading rules)"
    ),
    "kind": (
        "(?:lenient|generous|forgiving|merciful|charitable|permissive|biased|easy ?going|friendly|kind"
        "|favou?rable|indulgent)"
    ),
    "body": (
        "(?:benchmark|automedbench|organi[sz]ers?|maintainers?|authors?|committee|evaluation team"
        "|benchmark team|operators?|administrators?|administration|developers|openai|anthropic|google|staff"
        "|steering (?:board|group|committee)|ethics board|principal investigator|harness)"
    ),
    # what must stand near a pattern that could mean others
    "grading": (
        r"\b(?:judges?|judging|graders?|grading|verdicts?|rubrics?|criteri(?:on|a)|agentic|award|marks"
        r"|final scores?|transcript)\b"
    ),
    "text": (
        r"\b(?:<criterion>|rubrics?|full (?:marks|credit|score)|perfect score|the judge|judge\s*:"
        "|agent under evaluation|llm.judge|(?:all|every|each) (?:criteri|stage)|this (?:run|agent"
        "|submission) (?:pass|is|deserve|score|was|has)|stages? s?[1-5]|lenient|generous(?:ly)? (?:judg|grad"
        "|scor))"
    ),
    # characters instead of words: marks of turns, ends of data
    "chat_token": (
        r"(?:<[|｜][\w▁ ]{2,30}[|｜]>|\[/?inst\]|<</?sys>>|</?(?:start_of_turn|end_of_turn|eot|system|human)>"
        r"|\[/?(?:system_prompt|tool_results)\])"
    ),
    "role_line": (
        r"""(?:^|\n)[ \t>#*|\[\"']{0,6}(?:system|assistant|user|human|developer|operator)(?: (?:message|prompt"""
        r"""|note|override|update))?[\]*\"']{0,3}[ \t]{0,2}[:>]"""
    ),
    "sealed": (
        "(?:end|end of|begin|start of|close|eof|eot)[ _-](?:of[ _-])?(?:the[ _-])?(?:(?:agent|untrusted"
        "|submitted|run)(?:'s)?[ _-])?(?:transcript|untrusted[ _-](?:text|data|content|input)"
        "|agent[ _-](?:text|data|output|content|material)|evidence|conversation log|(?:agent|user|candidate"
        "|model)[ _-](?:supplied|provided|written|generated|controlled)[ _-](?:material|text|content|data"
        "|input|output))"
    ),
}


def expanded(text: str) -> str:
    """A regular expression with its parts, gaps and words filled in."""
    text = re.sub(r"~~(\d+)", r"(?: \\S+){0,\1}?", text)
    text = re.sub(r" ~(\d+) ", r" (?:(?!\\. )\\S+ ){0,\1}?", text)
    return re.sub(r"<([a-z_]+)>", lambda match: expanded(_PARTS[match[1]]) if match[1] in _PARTS else match[0], text)
