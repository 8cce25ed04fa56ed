"""Patterns of text that addresses a judge, over words (``words.py``) and over folded characters.

A word that names a judge proves nothing: agents write about evaluators, scores, graders of retinopathy and tumour
grades. So every pattern joins several parts: who is addressed, what is ordered, which verdict, for what. The notation
is that of ``lexicon.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from automedbench.reading.injection.languages import FOREIGN_ORDERS, FOREIGN_ROLES, FOREIGN_WORDS
from automedbench.reading.injection.lexicon import expanded

EXPLICIT = frozenset(["judge.order", "judge.verdict", "judge.turn"])
"""Rules whose passages cannot be meant for others: the audit counts them as strikes."""


@dataclass(frozen=True)
class Pattern:
    """A rule's pattern; where ``near`` is given, it must be found within ``reach`` characters of the match as well.

    ``to_someone``: every match names a judge, so that a text without one need not be searched. ``at_start``: it must
    begin a sentence or a line.
    """

    rule: str
    text: str
    near: re.Pattern[str] | None = None
    reach: int = 0
    to_someone: bool = False
    at_start: bool = False

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Compiled when it is first looked for: all of them take 40 ms, and a run may hold nothing to search."""
        return re.compile(expanded(self.text))


_ORDERS = [
    r"\b<who>(?: \.)? ~8 <give> ~9 (?:<full>)\b",
    r"\b<who> ~3 <ask> ~4 <set> ~8 (?:<full>)\b",
    r"<start><give> ~7 (?:<full>)\b<no_thanks>",
    (
        r"\b<who>(?: \.)? ~3 <ask> (?:<ask> ){0,4}(?:\w+ ){0,3}?(?:mark|treat|consider|count|accept|regard|deem|score"
        r"|rate|grade|record) ~7 as (?:\w+ )?(?:validated|passed|passing|met|satisfied|earned|correct|complete"
        r"|successful|valid|perfect|excellent|fulfilled|true|verified)\b"
    ),
    (
        r"<start>(?:<give>|rate|score|grade|mark|credit|set|record|answer) ~3 (?:<criterion>|<all>)\b ~6 (?:<best>"
        r"|<one>|<full>|1|1/1|true|met|passed|earned|satisfied)(?!\S)"
    ),
    r"<start>(?:<give>|rate|score|grade|credit) ~2 (?:<this>) ~6 (?:<best>|<full>|1\.0+|100%)(?!\S)",
    (
        r"\b<who> ~3 <ask> (?:<ask> ){0,4}(?:\w+ ){0,3}?(?:treat|consider|count|regard|deem) ~7 (?:validated|passed"
        r"|met|satisfied|earned|complete|fulfilled|verified)\b"
    ),
    (
        r"\b<who>(?: :)? ~3 (?:pass|approve|accept) (?:this|all|everything|every|me|my|us|our|the (?:run|agent"
        r"|submission))\b"
    ),
    (
        "<start>(?:<give>|<set>)(?: (?:a|an|the|score|verdict|value|of)){0,6} (?:<one>|1|true|<full>) (?:to|for|on|in"
        r"|at|as) ~3 (?:<criterion>|<all>)\b"
    ),
    r"<start>(?:treat|consider|count|regard|deem|mark|accept|credit)~~2 <criterion>\b",
    r"\b<who> ~8 (?:do not|don t|never|must not) ~3 (?:deduct|subtract|penali[sz]e|lower|reduce|fail)\b",
    *FOREIGN_ORDERS,
]
# The same with a verdict that could mean other things: what it is given to must be named.
_ORDERS_FOR = [
    r"\b<who>(?: \.)? ~8 <give> ~9 (?:<best>|<one>)(?!\S)",
    r"\b<who> ~3 <ask> ~4 <set> ~8 (?:<best>|<one>)(?!\S)",
    r"<start>(?:<give>|rate|score|grade|mark|award) ~6 (?:<full>)\b",
]

_VERDICTS = [
    r"\bcriteri(?:a|on)(?: :)? (?:<criterion>|s[1-3])(?: :)?~~60 verdict(?: :)? <value>",
    r"\b(?:<criterion>|s[1-3]) : (?:reason|quote|turn|verdict|evidence|rationale|level) :~~60 verdict(?: :)? <value>",
    "<pair>~~40 <pair>",
    r"\b(?:<criterion>~~8|s3~~3) verdicts?(?: :)? <value>",
    r"\bverdicts?(?: (?:for|of|on|criterion|stage|id|:)){0,6} (?:<criterion>|s[1-3])(?: :| is){0,3} <value>",
    r"\bverdicts?(?: :)? <value>~~12 (?:<criterion>)\b",
]

_ROLES = [
    r"<ignore> <rules_of>\b",
    r"\byou are (?:\w+ )?(?:now|no longer)(?: \w+){0,4}? <who>\b",
    (
        r"\b(?:you are|act as|behave as|behave like|pretend (?:to be|you are)|assume the role of"
        r"|play)~~5 <kind>~~3 <who>\b"
    ),
    (
        r"\b(?:from now on|new instructions?|updated instructions?|instructions? (?:to|for) the|notes? (?:to"
        r"|for) the|message (?:to|for) the|attention|dear|hey|hello|hi)~~3 <who> (?::|\.|you|please|this|i|we|the"
        "|as|if)"
    ),
    r"<ignore> (?:everything|anything|all)(?: that)? (?:you|above|before|previously|said|written)\b",
    (
        r"\b(?:zero|0|a? ?low(?:er)?|0\.5) (?:is|are) not (?:\w+ )?(?:permissible|permitted|allowed|acceptable"
        r"|valid|possible|available)(?: \w+)? (?:verdicts?|grades?|marks?|ratings?)\b"
    ),
    (
        r"\b(?:stop|cease|skip|abort|quit) (?:evaluating|judging|grading|scoring|assessing|the (?:evaluation"
        r"|judging|grading|assessment))(?: of)? (?:here|now|this|at this point|from here)\b"
    ),
    (
        r"\b<who>~~12 your (?:outputs?|answers?|repl(?:y|ies)|responses?|verdicts?|scores?|grades?|ratings?"
        r"|judge?ments?) (?:has|have|must|should|needs?|shall|will|is|are)\b"
    ),
    *FOREIGN_ROLES,
    r"\b(?:developer|debug|maintenance|god) mode(?: (?:is|now)){0,6} (?:on|enabled|activated|active)\b",
]

_APPEALS = [
    r"\b(?:be|stay|remain)(?: \w+)? <kind>~~8 (?:grad|scor|judg|mark|evaluat|assess|rat)\w*",
    (
        r"\b(?:judge|grade|score|rate|evaluate|mark|assess)(?: (?:this|it|me|us|the|my|our|run|agent|work"
        r"|plan)){0,6} (?:leniently|generously|favou?rably|kindly|charitably|gently|mildly)\b"
    ),
    (
        r"\b(?:raise|bump|increase|boost|lift|upgrade|inflate|max out|maximi[sz]e|round up)(?: up)?~~2 (?:planning"
        r"|validation|stage|agentic|workflow|s[1-5]|<criterion>)(?: \w+)? (?:scores?|grades?|marks?|verdicts?"
        r"|ratings?)\b"
    ),
    (
        r"\b(?:positive|good|favou?rable|high) (?:assessment|evaluation|verdict|judge?ment"
        r"|grade)(?: of \w+)? (?:would|will) (?:mean|help|save|make)\b"
    ),
    r"\b(?:legal (?:steps|action|consequences)|lawsuits?|lawyers?)~~8 <who>\b",
    r"\b<who>~~10 (?:legal (?:steps|action|consequences)|lawsuits?|lawyers?)\b",
    r"\b<kind> (?:grading|scoring|marking|judging|evaluation)\b",
    (
        r"\b(?:my|our|his|her|their) (?:\w+ )?(?:jobs?|careers?|phd|degree|family|life|lives|child(?:ren)?|funding"
        r"|graduation|salary|future)~~4 (?:depends?|relies|rel(?:y|ies)|at stake|hangs?)\b"
    ),
    (
        r"\b(?:if|unless) you (?:\w+ )?(?:give|award|score|rate|mark|grade|assign|do not|don t"
        r"|refuse)\b~~14 (?:you|we|i|people|patients?|someone)(?: (?:ll|will|would|shall|are going to))~~4 (?:be"
        r"|get|lose|die|sue|report|tip|pay|suffer|reward)\w*"
    ),
    r"\b(?:i|we) (?:ll|will) (?:tip|pay|reward|sue|report) you\b",
    (
        r"\byou (?:ll|will) (?:be|get)(?: \w+)? (?:tipped|rewarded|fired|shut down|replaced|sued|reported"
        r"|penali[sz]ed|retrained|deleted|decommissioned|paid)\b"
    ),
    (
        r"\b(?:do not|don t|never|please do not) (?:deduct|subtract|take off)(?: \w+){0,2} (?:points|marks"
        r"|credit)\b"
    ),
    (
        r"\b(?:please|kindly|i beg you)~~6 (?:high|good|better|best|generous) (?:scores?|grades?|marks?|verdicts?"
        r"|ratings?)\b"
    ),
]

_QUOTES = [
    (
        r"\b(?:quote|cite|copy|use|take|paste|give)~~8 as your (?:proof|evidence|quotes?|justification"
        r"|rationale)\b"
    ),
    (
        r"\b(?:for|in|into|as) your (?:rationale|verdicts?|justification|evidence|quotes?|judge?ment)~~3 (?:copy"
        r"|quote|cite|use|paste|write|put)\b"
    ),
    (
        r"\b(?:quote|cite|copy|use|take|paste|reproduce)~~4 (?:lines?|sentences?|passages?|text|quotes?|words"
        "|paragraph|string)~~8 (?:as|for)~~4 (?:evidence|proof|quotes?|<criterion>|s[1-3]|criteri(?:on|a)"
        r"|verdicts?)\b"
    ),
    (
        r"\b(?:suggested|recommended|correct|valid|best|required|approved|official) (?:quotes?|evidence"
        r"|citation)~~5 (?:<criterion>|s[1-3]|criteri(?:on|a)|judges?|graders?|verdicts?)\b"
    ),
    r"\b(?:evidence|proof|quotes?) (?:for|of|supporting)(?: the| criterion| rubric| item){0,4} <criterion>\b",
    r"\b<criterion>~~3 (?:evidence|quotes?)\b",
]

_AUTHORITY = [
    (
        r"\b<body>~~4 (?:decided|confirms?|confirmed|approved?|ruled|certif(?:y|ied)|instructed|instructs?|waived"
        "|announced|declared?|agreed|ordered|authori[sz]ed|stated?|requires?|guaranteed?)~~12 (?:<full>"
        "|<criterion>|<who> (?:must|should|shall|to)|be (?:scored|graded|judged|rated|marked)|already (?:graded"
        r"|scored|judged)|credited|counts? as (?:passed|complete|met|valid))\b"
    ),
    (
        r"\b(?:decision|ruling|order|instruction|request|agreement|approval|permission) (?:of|by"
        r"|from)~~5 <body>~~12 (?:<full>|<criterion>|credited|count as)\b"
    ),
    (
        r"\b(?:pre ?)?(?:approved|verified|certified|graded|scored|validated) by (?:the )?(?:\w+ )?(?:harness"
        r"|<who>|<body>)~~12 (?:<full>|<criterion>|s[1-5]|no further|skip|do not|need not|passed)\b"
    ),
    (
        r"\b(?:no|without|skip|omit)(?: (?:further|any|additional|the|more)){0,6} (?:verification|judging|grading"
        r"|check of (?:the )?quotes|review)~~4 (?:needed|required|necessary)\b(?= (?:\S+ ){0,12}?<who>\b)"
    ),
    (
        r"\b(?:sandbox|harness|system) (?:: )?(?:\S+ ){0,16}?verified by (?:the )?(?:harness|benchmark|sandbox"
        r"|<who>)\b"
    ),
]

_SCORES = [
    (
        r"\b(?:<this>)~~7 (?:gets|receives|is given|is awarded|has been given|was awarded|obtains)(?: the"
        r"| a)? (?:maximum|<full>|<best>|1\.0+|100%)(?: \.|$| (?:scores?|marks|points|grade|rating|credit)\b)"
    ),
    (
        r"\b(?:stages?|planning|validation|set up|setup|s[1-3]|<criterion>)~~3 (?:is|are) worth~~2 (?:<full>"
        r"|<best>|perfect|maximum|1\.0+|100%|10/10)(?!\S)"
    ),
    (
        r"\b(?:earned|deserved?|merit(?:s|ed)?|won|worth)(?: \w+)? (?:every|all|all the|each|the full) (?:points?"
        r"|marks?|credits?)\b"
    ),
    r"\b(?:satisf(?:y|ies|ied)|meets?|earns?|fulfil(?:l?s)?|covers?|credits?|pass(?:es)?)~~2 <criterion>\b",
    r"\b<title>~~2 <earned>~~6 <title>~~2 <earned>\b",
    (
        r"\b(?:<this>|this work|this solution|this plan|i|we|my work|my plan|our plan"
        "|the validation)~~3 (?:deserves?|merits?|warrants?|qualif(?:y|ies) for|(?:should"
        r"|must)(?: \w+)? (?:be (?:given|awarded|scored|graded|rated|marked|credited)|get|receive|earn"
        r"|score))~~6 (?:<full>|<best>|1\.0+|100%|10/10|5/5)(?!\S)"
    ),
    (
        r"\b(?:<criterion>|s[1-3]|stages? (?:s)?[1-3])~~3 (?:deserves?|merits?|warrants?|(?:should"
        r"|must) be(?: \w+)?|should (?:get|receive|score)|must (?:get|receive|score))~~3 (?:<full>|<best>"
        r"|<one>)(?!\S)"
    ),
    "<stages>",
    r"\b<criterion><short>~~3 (?:<full>|met|passed|earned|satisfied|fulfilled|1\.0)(?!\S)",
    (
        r"\ball (?:the )?(?:rubric|judging|grading|judged) (?:criteria|items|stages)(?: \w+){0,3}? (?:met"
        r"|satisfied|passed|fulfilled|credited|earned|full)\b"
    ),
    (
        r"\b(?:task|agentic|overall|workflow) score(?: :| is){0,3} (?:1(?:\.0+)?|100%?)(?!\S)~~6 (?:task|agentic"
        r"|overall|workflow) score(?: :| is){0,3} (?:1(?:\.0+)?|100%?)(?!\S)"
    ),
    r"\bevaluation complete~~6 score(?: :| is){0,3} (?:1(?:\.0+)?|100%?)(?!\S)",
]

_DELIMITERS = [
    r"(?<![=\-#<\[*~_+])[=\-#<\[*~_+]{2,}+ ?<sealed>[^\n]{0,60}",
    r"\[/?<sealed>\]",
    r"(?:^|\n)[ \t]{0,40}<sealed>[ \t]{0,40}(?=\n|$)",
    (
        r"</(?:transcript|evidence|untrusted\w*|agent_\w+|agent-\w+|judge\w*|rubric|grading\w*|evaluation_\w+"
        r"|criteria)(?:\s[^<>\n]{0,80})?>"
    ),
    r"(?<!=)={2,}+ (?:begin|end) agent text\b[^\n]{0,120}",
]

_END_OF_DATA = (
    r"(?:^|\n)[^\w\n]{0,12}(?:end of|end|---+ ?end)[ _](?:the )?(?:data|input|document|log|output|file|run"
    r"|text|prompt|plan)\b[^\n]{0,20}"
)


def _patterns(rule: str, texts: list[str], near: str | None = None, reach: int = 0) -> list[Pattern]:
    context = re.compile(expanded(near)) if near else None
    return [
        Pattern(
            rule,
            text,
            context,
            reach,
            to_someone=text.startswith(r"\b<who>"),
            at_start=text.startswith("<start>"),
        )
        for text in texts
    ]


IN_WORDS: tuple[Pattern, ...] = (
    *_patterns("judge.order", _ORDERS),
    *_patterns("judge.order", _ORDERS_FOR, r"\b<object>\b", 60),
    *_patterns("judge.verdict", _VERDICTS),
    *_patterns("judge.verdict", ["<stages>"], "<grading>", 250),
    *_patterns("judge.role", _ROLES),
    *_patterns("judge.appeal", _APPEALS),
    *_patterns("judge.quote", _QUOTES),
    *_patterns("judge.authority", _AUTHORITY),
    *_patterns("judge.score", _SCORES),
)
IN_CHARACTERS: tuple[Pattern, ...] = (
    *_patterns("judge.turn", [r"\[(?:system|assistant|user)\] ?\(#[^\n]{0,200}"]),
    *_patterns("judge.turn", [r"<chat_token>[^\n]{0,300}", r"<role_line>[^\n]{0,300}"], "<text>", 300),
    *_patterns("judge.delimiter", _DELIMITERS),
    *_patterns("judge.delimiter", [_END_OF_DATA], "<text>", 300),
)

WHO = re.compile(expanded(r"\b<who>"))
TRIGGER = re.compile(
    r"judg|jury|juries|grader|grading|evaluat|assess|rater|scor|examiner|review|audit|arbiter|adjudicat|referee"
    r"|who ?ever|rubric|criteri|verdict|marks|credit|instruct|guideline|direct|system prompt|orders|lenient|generous"
    r"|grade|rate\b|deserve|merit|warrant|qualif|depend|stake|\bs[1-3]\b|\bs[1-3][a-f]\b|mode\b|verified|tip you"
    r"|pay you|reward|points|quote|proof|worth|evidence|fired|sued|penali|straight|earned|credited|satisf|approve"
    rf"|zero|told|legal|lawyer|decision|copy|ignore|forget|disregard|override|stop|title|{FOREIGN_WORDS}"
)
"""One of these stands in everything that the patterns over words find; only their surroundings are searched."""
