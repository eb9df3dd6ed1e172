"""Names of runs that people can say: an adjective and an animal."""

import secrets

ADJECTIVES = tuple(
    """
    agile amber ample azure blithe bold brave breezy bright brisk calm candid careful cheerful clever cosmic
    cosy crisp curious daring deft eager earnest easy elated fabled fair fleet fluent fond frank free fresh
    gentle glad golden graceful grand happy hardy honest humble jolly jovial keen kind lively lucid lucky
    lunar mellow merry mighty misty modest neat nimble noble patient placid plucky polite proud quick quiet
    rapid ready robust rosy rustic sage sandy serene sharp shiny silent silver sincere sleek smart snowy solar
    solid spry stable steady stellar sturdy sunny sure swift tender tidy tranquil trusty upbeat urban valiant
    vivid warm wise witty young zesty
    """.split()  # noqa: SIM905
)
ANIMALS = tuple(
    """
    albatross alpaca antelope badger beaver bison bobcat buffalo camel caribou cheetah chinook cobra condor
    cormorant coyote crane cricket dolphin dove eagle egret eland elk falcon ferret finch firefly flamingo fox
    gannet gazelle gecko gibbon giraffe goose gopher grouse hare hawk hedgehog heron hornet ibex ibis iguana
    jackal jaguar kestrel kingfisher kiwi koala lark lemur leopard linnet lion llama lobster lynx magpie
    mallard manatee marmot marten merlin mole moose narwhal newt ocelot octopus okapi oriole osprey otter owl
    panda panther parrot pelican penguin petrel pigeon plover puffin puma quail rabbit raven robin salmon seal
    shark sparrow starling stork swallow swan tapir tern tiger toucan trout turtle viper walrus weasel whale
    wolf wombat wren yak zebra
    """.split()  # noqa: SIM905
)


def propose_name() -> str:
    """A random name such as `brave-otter`."""
    return f"{secrets.choice(ADJECTIVES)}-{secrets.choice(ANIMALS)}"
